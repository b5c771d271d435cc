package poison

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/causes"
	"github.com/watermill-spillway/spillway/internal/outage"
)

// Promises P1, P3, decisions 13, 17: while what takes the letters is away, messages are held rather than nacked again and again,
// which a broker may count and end. Their handlers run once, and the log has one line at the begin and one at the end.
func TestSinksAway(t *testing.T) {
	down := outage.NewError("no connection")
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(12 * time.Second)
		dead, logger := &sink{}, watermill.NewCaptureLogger()
		dead.refuse = func(int, string, *message.Message) error {
			if time.Now().Before(back) {
				return fmt.Errorf("publish: %w", down)
			}
			return nil
		}
		q, err := NewQueue(dead, QueueConfig{Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		calls := make(chan string, 20)
		h := q.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			calls <- msg.UUID
			return nil, classify.Permanent(errors.New("failed"))
		})
		results := make(chan error, 3)
		for i := range 3 {
			go func() {
				_, err := h(message.NewMessage(fmt.Sprint(i), nil))
				results <- err
			}()
		}
		for range 3 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if len(calls) != 3 || len(dead.in("unknown.dlq")) != 3 {
			t.Errorf("%d calls of handlers, letters %v", len(calls), dead.topics())
		}
		if lines := logger.Captured()[watermill.ErrorLogLevel]; len(lines) != 4 { // the outage, and three letters
			t.Errorf("%d Error lines: %v", len(lines), lines)
		}
	})
}

// Promise P3: a message that was held for long enough is given back, uncounted and without an Error line of its own.
func TestSinksAwayForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := &sink{refuse: func(int, string, *message.Message) error { return outage.NewError("no connection") }}
		q, err := NewQueue(dead, QueueConfig{})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = q.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, errors.New("failed") })(message.NewMessage("m", nil))
		failure, ok := causes.Find[*classify.Failure](err)
		if !ok || failure.Verdict.Class != classify.ClassAborted || time.Since(began) < outage.DefaultMaxHold {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
