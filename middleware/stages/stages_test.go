package stages_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
)

// staging is a router with stages, on a pub/sub whose time is that of synctest.
type staging struct {
	*testing.T
	broker  *broker
	letters *letters
	stages  *stages.Stages
	router  *message.Router
	stop    func()
}

type handled struct {
	at       time.Duration
	name     string
	topic    string
	metadata message.Metadata
}

// note records the invocations of a handler by message id.
type note struct {
	mu    sync.Mutex
	start time.Time
	by    map[string][]handled
}

// of are the invocations for one message.
func (n *note) of(id string) []handled {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.by[id])
}

func newNote() *note { return &note{start: time.Now(), by: map[string][]handled{}} }

func (n *note) add(msg *message.Message) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	ctx := msg.Context()
	n.by[msg.UUID] = append(n.by[msg.UUID], handled{time.Since(n.start), message.HandlerNameFromCtx(ctx), message.SubscribeTopicFromCtx(ctx), msg.Copy().Metadata})
	return len(n.by[msg.UUID])
}

// Features R5, R9, R10: a message that fails for the moment is handled again after each delay, by the same handler
// under the same name, while those behind it go on; its story travels with it.
func TestStagesHandleLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(5*time.Second, time.Minute, 10*time.Minute), Jitter: -1}, nil)
		n := newNote()
		s.handle("billing", "orders", func(msg *message.Message) error {
			if times := n.add(msg); msg.UUID == "bad" && times < 4 {
				return fmt.Errorf("down, time %d", times)
			}
			return nil
		})
		s.run()
		s.publish("orders", "bad", "good")
		time.Sleep(time.Second)
		synctest.Wait()
		if len(n.of("good")) != 1 || len(n.of("bad")) != 1 {
			t.Fatalf("after a second: %v, %v", n.of("good"), n.of("bad"))
		}
		time.Sleep(12 * time.Minute)
		s.stop()
		want := []time.Duration{0, 5 * time.Second, 65 * time.Second, 665 * time.Second}
		if len(n.of("bad")) != len(want) || len(s.letters.all()) != 0 {
			t.Fatalf("handled %v, letters %v", n.of("bad"), s.letters.all())
		}
		for i, h := range n.of("bad") {
			if h.at.Truncate(time.Second) != want[i] || h.name != "billing" || h.topic != "orders" {
				t.Errorf("attempt %d: %+v", i+1, h)
			}
			if i > 0 && (h.metadata[poison.KeyAttempts] != fmt.Sprint(i) || h.metadata[poison.KeyRetryStage] != fmt.Sprint(i) || h.metadata[poison.KeyOriginalTopic] != "orders") {
				t.Errorf("attempt %d came with %v", i+1, h.metadata)
			}
		}
	})
}

// Feature C5: what no stage helps is set aside with the whole history: at once where it cannot pass with time.
func TestStagesExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second, 2*time.Second)}, nil)
		n := newNote()
		s.handle("billing", "orders", func(msg *message.Message) error {
			n.add(msg)
			switch msg.UUID {
			case "permanent":
				return classify.Permanent(errBoom)
			case "invalid":
				return classify.Invalid(errBoom)
			}
			return classify.Transient(errBoom)
		})
		s.passes(10*time.Second, "permanent", "invalid", "down")
		letters := s.letters.all()
		if len(letters) != 3 || len(n.of("permanent")) != 1 || len(n.of("invalid")) != 1 || len(n.of("down")) != 3 {
			t.Fatalf("letters %v, handled %v", letters, n.of("down"))
		}
		down := letters["down"]
		if down.Failure.Reason != classify.ReasonTransientMaxRetries || down.Failure.Attempts != 3 || len(down.Failure.History) != 3 ||
			down.Origin.Topic != "orders" || down.Origin.Handler != "billing" || down.Failure.LastFailedAt.Sub(down.Failure.FirstFailedAt) < 3*time.Second {
			t.Errorf("%+v", down)
		}
		if len(down.Original.Metadata) != 1 {
			t.Errorf("its original has %v", down.Original.Metadata)
		}
	})
}
