package poison

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/attempts"
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
			if err := queue.Place(message.NewMessage("m", nil), errors.New("failed")); err == nil || len(at) != len(want)+1 {
				t.Fatal(err, len(at))
			}
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
			if err := queue.Place(message.NewMessage(strings.Repeat("m", 900), nil), failure); err == nil {
				t.Fatal("it was taken")
			}
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
