package crashlimit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/internal/deliveries"
	"github.com/watermill-spillway/spillway/poison"
)

// Features D10, V3: a redriven message starts anew, though the marks of the refused one were not removed before the
// process ended, and uses up a count of its own.
func TestRedriven(t *testing.T) {
	marks(t, options{}, func(t *testing.T, f *fake, l *Limit) {
		f.leaveMarks("a", 3)
		redriven := func(count string) *message.Message {
			msg := newMessage("a")
			msg.Metadata[poison.KeyRedriveCount] = count
			return msg
		}
		_, err := l.Middleware(succeed)(newMessage("a"))
		testkit.Check(t, verdict(err).Reason == classify.ReasonMaxDeliveries, "not refused: %v", err)
		for _, count := range []string{"1", "2"} {
			calls := 0
			if _, err := l.Middleware(func(*message.Message) ([]*message.Message, error) { calls++; return nil, nil })(redriven(count)); err != nil || calls != 1 {
				t.Errorf("redrive %s: %d calls, %v", count, calls, err)
			}
		}
		for _, forged := range []string{"0", "-1", "x", "99999999999999999999"} {
			if _, err := l.Middleware(succeed)(redriven(forged)); verdict(err).Reason != classify.ReasonMaxDeliveries {
				t.Errorf("a count of %q starts anew: %v", forged, err)
			}
		}
	})
}

// Feature D10, promise P3: messages that nothing tells apart, in flight in processes that live, are handled, all and at
// once, as is one whose session is lost again and again. Those that ended with one are counted. A key tells them apart.
func TestWithoutIDs(t *testing.T) {
	within(t, func(t *testing.T, f *fake) {
		afterCrash(t, f, options{})
		begin, release := time.Now(), make(chan struct{})
		var all sync.WaitGroup
		var running atomic.Int64
		h := func(*message.Message) ([]*message.Message, error) { running.Add(1); <-release; return nil, nil }
		const processes, each = 6, 3
		for range processes {
			l := newLimit(t, options{Config: Config{Store: f}})
			for range each {
				all.Go(func() {
					testkit.Is(t, testkit.Err(l.Middleware(h)(newMessage(""))), nil)
				})
			}
			synctest.Wait()
		}
		testkit.Check(t, running.Load() == processes*each && time.Now().Equal(begin),
			"%d of %d are handled after %s", running.Load(), processes*each, time.Since(begin))
		close(release)
		all.Wait()
		testkit.Check(t, len(f.left) == 0, "marks are left: %v", f.left)
		dead := started(t, f, options{})
		content := dead.markOf(callOf(newMessage("")))
		for i := range 3 {
			f.left[content] = append(f.left[content], deliveries.Mark{Delivery: i + 1, Process: fmt.Sprintf("gone%d.1", i)})
		}
		tick(1) // which shows that they are gone
		at := func(offset string) *Limit {
			return started(t, f, options{Config: Config{Key: func(*message.Message) string { return offset }}})
		}
		for offset, refused := range map[string]bool{"": true, "orders/0/7": false} {
			l := at(offset)
			for range 5 { // the first may not know yet that those processes are gone
				_, _ = l.Middleware(succeed)(newMessage(""))
				f.set(func() {
					if len(f.left[content]) < 3 {
						f.left[content] = marksBy("gone0.1", "gone1.1", "gone2.1")
					}
				})
				tick(1)
			}
			_, err := l.Middleware(succeed)(newMessage(""))
			testkit.Check(t, (verdict(err).Reason == classify.ReasonMaxDeliveries) == refused, "at %q: %v", offset, err)
		}
	})
}

// Feature D10: a message is known by its key, else by its id, else by what it holds.
func TestMarkOf(t *testing.T) {
	l := newLimit(t, options{Config: Config{Store: newFake(), Key: func(msg *message.Message) string {
		if msg.UUID == "panics" {
			panic("boom")
		}
		return msg.Metadata["key"]
	}}})
	of := func(id, payload string, metadata ...string) deliveries.Key {
		msg := message.NewMessage(id, []byte(payload))
		for i := 0; i < len(metadata); i += 2 {
			msg.Metadata[metadata[i]] = metadata[i+1]
		}
		return l.markOf(callOf(msg))
	}
	testkit.Equal(t, "", of("id", "", "key", "k"), markOf("k"))
	testkit.Check(t, of("id", "").ID == "id" && of("panics", "").ID == "panics", "the id does not serve")
	testkit.Equal(t, "the same content has two marks", of("", "x", "a", "1", "b", "2"), of("", "x", "b", "2", "a", "1"))
	seen := map[deliveries.Key]bool{}
	for _, m := range []deliveries.Key{of("", ""), of("", "a"), of("", "", "a", ""), of("", "a", "b", ""), of("", "", "a", "b"), of("", "", "ab", ""), of("", "", "", "ab")} {
		testkit.Check(t, !seen[m], "two contents have the same mark")
		seen[m] = true
	}
}
