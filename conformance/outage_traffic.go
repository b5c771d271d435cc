package conformance

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// outageVariable names the environment variable with the time that an outage of rows R12 lasts, such as "30s". Default:
// 3 s, with fewer messages a second.
const outageVariable = "SPILLWAY_CONFORMANCE_OUTAGE"

// outageLasts returns how long a downstream is away, and how many messages a second come meanwhile. Rows judge by
// counts: on a slow machine fewer come. In process all of them are in hand at once, and each waits for SQLite's one
// writer, so fewer come there too.
func (b *bench) outageLasts() (lasts time.Duration, rate int) {
	b.Helper()
	given := os.Getenv(outageVariable)
	if given == "" {
		return 3 * time.Second, 40
	}
	lasts, err := time.ParseDuration(given)
	if err != nil || lasts <= 0 {
		b.Fatalf("%s is %q: give a duration, such as 30s", outageVariable, given)
	}
	if b.target.CreateTopic == nil {
		return lasts, 50
	}
	return lasts, 500
}

// traffic publishes messages with ids of their own, beside whatever happens to them. A message that the broker refuses
// is published again, so it may be there twice.
type traffic struct {
	b    *bench
	pub  message.Publisher
	mu   sync.Mutex
	ids  []string
	over chan struct{}
	done sync.WaitGroup
}

// traffic publishes rate messages a second until it is stopped, which the end of the row does too. name gives the id of
// the i-th message.
func (b *bench) traffic(rate int, name func(i int) string) *traffic {
	b.Helper()
	t := &traffic{b: b, pub: b.publisher(), over: make(chan struct{})}
	t.done.Go(func() {
		begun := time.Now()
		for i := 0; ; i++ {
			select {
			case <-t.over:
				return
			case <-time.After(time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(rate)))):
			}
			if !t.publish(name(i)) {
				return
			}
		}
	})
	b.Cleanup(func() { t.stop() })
	return t
}

// publish is false if the traffic was stopped before the broker took the message.
func (t *traffic) publish(id string) bool {
	for t.pub.Publish(t.b.topic, newMessage(id)) != nil {
		select {
		case <-t.over:
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ids = append(t.ids, id)
	return true
}

// stop returns the ids that were published, in their order.
func (t *traffic) stop() []string {
	t.mu.Lock()
	select {
	case <-t.over:
	default:
		close(t.over)
	}
	t.mu.Unlock()
	t.done.Wait()
	return t.sent()
}

func (t *traffic) sent() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.ids)
}

// goodOnly names messages that can succeed.
func goodOnly(i int) string { return fmt.Sprintf("good-%06d", i) }

// untilAllApplied waits until each id took effect, as long as any does within patience.
func (b *bench) untilAllApplied(ids []string) {
	b.Helper()
	last, since := -1, time.Now()
	for ; ; time.Sleep(50 * time.Millisecond) {
		effects := b.effects()
		if !slices.ContainsFunc(ids, func(id string) bool { return effects[id] == 0 }) {
			return
		}
		if len(effects) != last {
			last, since = len(effects), time.Now()
		}
		if time.Since(since) > patience {
			missing := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return effects[id] > 0 })
			b.Fatalf("%d of %d messages took no effect, and none does within %s: %q; set aside %d, failed attempts %d",
				len(missing), len(ids), patience, missing[:min(len(missing), 10)], b.placed.Load(), b.attempts.Load())
		}
	}
}
