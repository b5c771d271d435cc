package stages

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/recent"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
)

func staged(entry, id, payload string, metadata ...string) *message.Message {
	msg := message.NewMessage(id, []byte(payload))
	for i := 0; i < len(metadata); i += 2 {
		msg.Metadata.Set(metadata[i], metadata[i+1])
	}
	if entry != "" {
		msg.Metadata.Set(poison.KeyRetryEntry, entry)
	}
	return msg
}

func topicOf(name string) *stageTopic {
	return &stageTopic{of: &handler{name: "billing", stages: &Stages{}}, topic: name}
}

// Feature R5b: a copy is known by its entry, its id and its payload, and without an entry by all that it has. What has
// neither entry nor id is no copy of anything.
func TestIdentify(t *testing.T) {
	one := staged("e", "1", "p", "a", "b", "c", "d")
	id, named, ok := topicOf("t").identify(one)
	testkit.Require(t, ok && named, "a message with an entry has no identity")
	for name, row := range map[string]struct {
		topic string
		msg   *message.Message
		same  bool
	}{
		"again":              {"t", staged("e", "1", "p", "c", "d", "a", "b"), true},
		"with a new header":  {"t", staged("e", "1", "p", "x-delivery-count", "2"), true},
		"another entry":      {"t", staged("f", "1", "p"), false},
		"another payload":    {"t", staged("e", "1", "q"), false},
		"another id":         {"t", staged("e", "2", "p"), false},
		"another topic":      {"u", staged("e", "1", "p"), false},
		"other fields":       {"t", staged("e1", "", "p"), false},
		"without an entry":   {"t", staged("", "1", "p", "a", "b", "c", "d"), false},
		"its entry is empty": {"t", staged("", "1", "p", poison.KeyRetryEntry, ""), false},
	} {
		if other, _, ok := topicOf(row.topic).identify(row.msg); !ok || (other == id) != row.same {
			t.Errorf("%s: the same %t", name, other == id)
		}
	}
	plain := func(metadata ...string) identity {
		id, named, ok := topicOf("t").identify(staged("", "1", "p", metadata...))
		testkit.Check(t, ok && !named, "%v: has an entry, or no identity", metadata)
		return id
	}
	if plain("a", "b", "c", "d") != plain("c", "d", "a", "b") || plain("a", "b") == plain("a", "c") || plain("a", "bc") == plain("ab", "c") {
		t.Error("without an entry a message is known by its metadata")
	}
	if plain("a", "b") != plain("a", "b", "x-acquired-count", "2", "_watermill_amqp_redelivered", "true") {
		t.Error("what a broker and an adapter added makes another message of one without an entry")
	}
	if _, _, ok := topicOf("t").identify(staged("", "", "p")); ok {
		t.Error("a message without entry and id is taken for another one")
	}
}

func TestEntries(t *testing.T) {
	entry := newEntry()
	next := nextEntry(entry)
	testkit.Check(t, len(entry) == 24 && newEntry() != entry && next == entry+"-1" && nextEntry(next) == entry+"-2",
		"%v %v", entry, next)
	if one, two := nextEntry(""), nextEntry(""); one == two {
		t.Error("two messages without an entry have the same next one")
	}
	for _, hostile := range []string{"-", "a-b-c", "a--1", "a-99999999999999999999999", strings.Repeat("a", 1<<20)} {
		if next := nextEntry(hostile); next == hostile || len(next) > 100 {
			t.Errorf("%.20s: %.200s", hostile, next)
		}
	}
}

// Promise P4: what is remembered of acked messages is bounded in number and in time.
func TestCopiesMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c copies
		ack := func(n uint64) {
			id := identity{n, n}
			own, _, _, _ := c.enter(id)
			c.leave(id, own, acked, time.Second, true)
		}
		known := func(n uint64) bool {
			own, _, waited, wasAcked := c.enter(identity{n, n})
			if own != nil {
				c.leave(identity{n, n}, own, requeued, 0, true)
			}
			return wasAcked && waited == time.Second
		}
		const first = 1 << 40
		ack(first)
		for n := range uint64(3 * mostRemembered) {
			ack(n)
			testkit.Require(t, len(c.done)+len(c.before) <= 2*mostRemembered && len(c.held) <= 0,
				"%d and %d are remembered, %d held", len(c.done), len(c.before), len(c.held))
		}
		testkit.Check(t, known(3*mostRemembered-1) && known(2*mostRemembered) && !known(first),
			"not the latest are remembered")
		time.Sleep(remembered + time.Second)
		ack(1)
		time.Sleep(remembered - time.Second)
		testkit.Check(t, known(1) && known(3*mostRemembered-1), "forgotten too early")
		time.Sleep(2 * time.Second)
		ack(2)
		testkit.Check(t, !known(3*mostRemembered-1) && known(1), "remembered for too long, or too short")
		own, _, _, _ := c.enter(identity{7})
		c.leave(identity{7}, own, acked, 0, false)
		if _, _, _, wasAcked := c.enter(identity{7}); wasAcked {
			t.Error("a message without an entry was remembered")
		}
	})
}

// Feature R5b: an ack in a transaction can be undone with what the handler wrote. Each delivery is handled then.
func TestNoCopiesInTransactions(t *testing.T) {
	w := &waiter{at: topicOf("t"), sub: &sharedSubscriber{redelivery: &hold.Redelivery{InTransaction: true}}}
	in := &waiter{at: topicOf("t"), sub: &sharedSubscriber{redelivery: &hold.Redelivery{}}}
	for range 3 {
		msg := staged("e", "1", "p")
		msg.SetContext(context.Background())
		if _, claimed := w.claim(ending{t.Context(), t.Context()}, msg); !claimed {
			t.Error("a stock subscriber's message is taken for a copy")
		}
		msg.SetContext(chain.WithTransaction(context.Background(), t))
		if _, claimed := in.claim(ending{t.Context(), t.Context()}, msg); !claimed {
			t.Error("a message in a transaction is taken for a copy")
		}
	}
}

// One stage that takes nothing, for many messages: one is set aside in five minutes.
func TestStageRefusesMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := func(id int) recent.Message {
			return recent.Of(chain.Keep(message.NewMessage(fmt.Sprint(id), nil)))
		}
		r, first := newRefusals(), 0
		for range 12 {
			for id := range 900 {
				if r.tooLong("stage", refused(id)) {
					first++
				}
			}
			time.Sleep(30 * time.Second)
		}
		testkit.Equal(t, "set aside in six minutes", first, 1)
	})
}

// Promise P1: a message goes to a stage when the stage's handler has subscribed, and not before; who waits for one that
// never does, or whose own message ends, gives up.
func TestLatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		g := newLatch()
		time.AfterFunc(time.Second, g.open)
		testkit.Check(t, g.await(t.Context()) && time.Since(start) == time.Second && g.await(t.Context()),
			"opened after %s", time.Since(start))
		g.open()
		start = time.Now()
		testkit.Check(t, !newLatch().await(t.Context()) && time.Since(start) == maxSubscribing,
			"gave up after %s", time.Since(start))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		testkit.Check(t, !newLatch().await(ended), "passed a gate that is shut")
	})
}
