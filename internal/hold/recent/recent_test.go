package recent

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/chain"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func of(handler, id, payload string) Message {
	msg := message.NewMessage(id, []byte(payload))
	msg.SetContext(chain.Within(context.Background(), handler, "orders"))
	c := chain.Keep(msg)
	defer c.Release()
	msg.UUID = "changed by the handler"
	return Of(c)
}

// Messages are told apart by handler and id, and those without an id by their payload.
func TestOf(t *testing.T) {
	for _, m := range []struct{ id, payload, again string }{{"1", "a", "b"}, {"", "a", "a"}} {
		if of("billing", m.id, m.payload) != of("billing", m.id, m.again) {
			t.Errorf("a message with id %q is two", m.id)
		}
	}
	for _, other := range []Message{of("shipping", "1", "a"), of("billing", "2", "a"), of("billing", "", "a"), of("billing", "", "b")} {
		if other == of("billing", "1", "a") {
			t.Errorf("%v is another message", other)
		}
	}
	if of("billing", "", "a") == of("billing", "", "b") {
		t.Error("messages without an id are one")
	}
}

// Promise P4: what is remembered is bounded in number and in time.
func TestMemory(t *testing.T) {
	m, now := For[int](time.Minute), time.Now()
	for range 3 {
		*m.Note(of("billing", "1", ""), now)++
		now = now.Add(time.Minute)
	}
	if n := m.Get(of("billing", "1", "")); n == nil || *n != 3 {
		t.Errorf("remembered %v of a message that had trouble each minute", n)
	}
	if n := *m.Note(of("billing", "1", ""), now.Add(time.Second)); n != 0 {
		t.Errorf("a message that had no trouble for longer is remembered: %d", n)
	}
	for id := range 3 * Most {
		m.Note(of("billing", fmt.Sprint(id), ""), now)
	}
	if m.Len() != Most || m.Get(of("billing", fmt.Sprint(3*Most-1), "")) == nil {
		t.Errorf("%d messages are remembered, and not the latest", m.Len())
	}
	m.Note(of("shipping", "1", ""), now.Add(2*time.Minute))
	if m.Len() != 1 {
		t.Errorf("%d are remembered for good", m.Len())
	}
	m.Forget(of("shipping", "1", ""))
	if m.Len() != 0 || m.Get(of("shipping", "1", "")) != nil {
		t.Error("a message is not forgotten")
	}
	m.Note(of("billing", "1", ""), now)
	if m.Sweep(now.Add(time.Hour)); m.Len() != 0 {
		t.Error("an old message outlived a sweep")
	}
}
