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
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/settings"
)

// Promises P1, P3, decisions 13, 17: while what takes the letters is away, messages are held rather than nacked again
// and again, which a broker may count and end. Their handlers run once, and the log has one line at the begin and one
// at the end.
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
		q := newQueue(t, dead, QueueConfig{Shared: settings.Shared{Logger: logger}})
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
