package poison

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/attempts"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature D4: the wait between tries doubles, give or take half of it, and is never cut to less than was asked for.
func TestPublishBackoff(t *testing.T) {
	for _, first := range []time.Duration{50 * time.Millisecond, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var at []time.Time
			dead := &sink{refuse: func(int, string, *message.Message) error {
				at = append(at, time.Now())
				return errors.New("not now")
			}}
			queue := newQueue(t, dead, QueueConfig{PublishAttempts: 8, PublishBackoff: first})
			err := queue.Place(message.NewMessage("m", nil), errors.New("failed"))
			testkit.Require(t, err != nil && len(at) == 8, "%v %v", err, len(at))
			for i := range 7 {
				wait, want := at[i+1].Sub(at[i]), min(first<<i, max(first, time.Second))
				testkit.Check(t, wait >= want/2 && wait <= want*3/2+time.Millisecond,
					"with %s: wait %d is %s, want about %s", first, i+1, wait, want)
			}
		})
	}
}

// Features D4, D6: a refusal for size is tried once more as it is. Then the letter is cut to the bone, and is never larger
// than before, Watermill's keys included.
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
			if sizes[1] != whole || whole > most+extra || cut > whole || cut > 4<<10 || most == MaxAdded && cut >= whole {
				t.Errorf("budget %d, with Watermill's keys %t: sizes %v", most, watermill, sizes)
			}
		}
	}
}

// Promises P1, P3, decision 13: while what takes the letters is away, messages are held rather than nacked again and
// again, which a broker may count and end. Their handlers run once. TestOutage of internal/outage has the log.
func TestSinksAway(t *testing.T) {
	down := outage.NewError("no connection")
	synctest.Test(t, func(t *testing.T) {
		back, dead := time.Now().Add(12*time.Second), &sink{}
		dead.refuse = func(int, string, *message.Message) error {
			if time.Now().Before(back) {
				return fmt.Errorf("publish: %w", down)
			}
			return nil
		}
		calls := 0
		_, err := newQueue(t, dead, QueueConfig{}).Middleware(func(*message.Message) ([]*message.Message, error) {
			calls++
			return nil, classify.Permanent(errors.New("failed"))
		})(message.NewMessage("m", nil))
		testkit.Check(t, err == nil && calls == 1 && dead.topics() == "unknown.dlq:1", "%d calls, letters %v, %v", calls, dead.topics(), err)
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
