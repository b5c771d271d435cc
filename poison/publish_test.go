package poison

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/attempts"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/settings"
)

// Feature D4: the wait between tries doubles, give or take half of it, and is never cut to less than was asked for.
func TestPublishBackoff(t *testing.T) {
	for first, want := range map[time.Duration][]time.Duration{
		50 * time.Millisecond: {50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, time.Second, time.Second},
		3 * time.Second:       {3 * time.Second, 3 * time.Second, 3 * time.Second, 3 * time.Second, 3 * time.Second, 3 * time.Second, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var at []time.Time
			dead := &sink{refuse: func(int, string, *message.Message) error { at = append(at, time.Now()); return errors.New("not now") }}
			queue := newQueue(t, dead, QueueConfig{PublishAttempts: len(want) + 1, PublishBackoff: first})
			err := queue.Place(message.NewMessage("m", nil), errors.New("failed"))
			testkit.Require(t, err != nil && len(at) == len(want)+1, "%v %v", err, len(at))
			for i := range want {
				if wait := at[i+1].Sub(at[i]); wait < want[i]/2 || wait > want[i]*3/2+time.Millisecond {
					t.Errorf("with %s: wait %d is %s, want about %s", first, i+1, wait, want[i])
				}
			}
		})
	}
}

// Feature D4: cut to the bone, a letter is never larger than it was before, Watermill's keys included.
func TestCutDownIsSmaller(t *testing.T) {
	for _, most := range []int{1 << 10, 1500, 4 << 10, MaxAdded} {
		for _, watermill := range []bool{false, true} {
			var sizes []int
			dead := &sink{refuse: func(_ int, _ string, msg *message.Message) error {
				size := 0
				for key, value := range msg.Metadata {
					size += len(key) + len(value)
				}
				sizes = append(sizes, size)
				return classify.ErrTooLarge
			}}
			queue := newQueue(t, dead, QueueConfig{WatermillKeys: watermill})
			queue.limits.total = most
			failure := &classify.Failure{}
			for i := range 10 {
				attempts.Add(failure, fmt.Errorf("%d %s", i, strings.Repeat("long ", 2000)), classify.Verdict{}, time.Now())
			}
			testkit.Require(t, queue.Place(message.NewMessage(strings.Repeat("m", 900), nil), failure) != nil,
				"it was taken")
			whole, cut := sizes[0], sizes[len(sizes)-1]
			extra := 0
			if watermill {
				extra = 4 << 10
			}
			if whole > most+extra || cut > whole || cut > 4<<10 || most == MaxAdded && cut >= whole {
				t.Errorf("budget %d, with Watermill's keys %t: sizes %v", most, watermill, sizes)
			}
		}
	}
}

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
			testkit.NoError(t, <-results)
		}
		if len(calls) != 3 || len(dead.in("unknown.dlq")) != 3 {
			t.Errorf("%d calls of handlers, letters %v", len(calls), dead.topics())
		}
		if lines := logger.Captured()[watermill.ErrorLogLevel]; len(lines) != 4 { // the outage, and three letters
			t.Errorf("%d Error lines: %v", len(lines), lines)
		}
	})
}

func TestMain(m *testing.M) {
	// A router whose Run fails at start-up, as in TestMissingDestinationEndsRun, leaves this goroutine of its own
	// behind.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"))
}
