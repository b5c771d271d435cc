package poison

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/settings"
)

// Decision 11, promise P4: a panic and runtime.Goexit become letters, and the message behind is handled.
func TestQueueSettlesPanicAndGoexit(t *testing.T) {
	dead := &sink{}
	r := start(t, "orders", dead, QueueConfig{}, func(msg *message.Message) ([]*message.Message, error) {
		switch msg.UUID {
		case "panic":
			panic("a bug")
		case "goexit":
			runtime.Goexit()
		}
		return []*message.Message{message.NewMessage("fine", nil)}, nil
	})
	for _, id := range []string{"panic", "goexit", "good"} {
		r.publish(message.NewMessage(id, nil))
	}
	eventually(t, "all are settled", func() bool { return len(dead.in("orders.dlq")) == 2 && len(r.outs.in("out")) == 1 })
	for _, msg := range dead.in("orders.dlq") {
		l, _ := Decode(msg)
		testkit.Check(t, l.Failure.Reason == l.Original.UUID && l.Failure.Class == classify.ClassPermanent,
			"%s has class %s and reason %s", l.Original.UUID, l.Failure.Class, l.Failure.Reason)
		testkit.Check(t, l.Failure.Reason != "panic" || l.Failure.Stack != "" && l.Failure.StackHash != "",
			"the panic has no stack")
	}
}

// Promise P1, decision 11: after Goexit with a sink that refuses, the message is nacked and comes again.
func TestQueueNacksGoexitWithoutSink(t *testing.T) {
	dead := &sink{refuse: func(try int, _ string, _ *message.Message) error {
		if try <= 2 {
			return errors.New("down")
		}
		return nil
	}}
	r := start(t, "orders", dead, QueueConfig{PublishAttempts: 1}, func(*message.Message) ([]*message.Message, error) {
		runtime.Goexit()
		return nil, nil
	})
	r.publish(message.NewMessage("id", nil))
	eventually(t, "the third delivery is placed", func() bool { return len(dead.in("orders.dlq")) == 1 })
}

// Promise P3, decision 2: nacked by its handler, a message is on its way back and is not placed too; acked by its
// handler, which ends its context, it has not gone away.
func TestQueueHandlerSettlesItself(t *testing.T) {
	dead := &sink{}
	nacked := false
	r := start(t, "orders", dead, QueueConfig{}, func(msg *message.Message) ([]*message.Message, error) {
		switch {
		case msg.UUID == "nack" && !nacked:
			nacked = true
			msg.Nack()
			return nil, errors.New("nacked")
		case msg.UUID == "ack":
			msg.Ack()
			<-msg.Context().Done()
			return nil, errors.New("failed after the ack")
		}
		return []*message.Message{message.NewMessage(msg.UUID, nil)}, nil
	})
	r.publish(message.NewMessage("nack", nil))
	r.publish(message.NewMessage("ack", nil))
	eventually(t, "both are settled", func() bool { return len(dead.in("orders.dlq")) == 1 && len(r.outs.in("out")) == 1 })
	testkit.Equal(t, "placed", dead.in("orders.dlq")[0].UUID, "ack")
}

func masking(t *testing.T, mask func(string) string) *privacy.Redactor {
	return testkit.Must(privacy.New(privacy.Rules{Mask: mask}))
}

// Feature D14: masks see every text and every value before any sink; where one panics the value is withheld.
func TestQueueMasks(t *testing.T) {
	hide := func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }
	for name, config := range map[string]QueueConfig{
		"masks":  {Shared: settings.Shared{Privacy: masking(t, hide)}, MaskMetadata: func(_, value string) string { return hide(value) }},
		"panics": {Shared: settings.Shared{Privacy: masking(t, func(string) string { panic("hunter2") })}, MaskMetadata: func(string, string) string { panic("hunter2") }},
	} {
		t.Run(name, func(t *testing.T) {
			dead := &sink{}
			r := start(t, "orders", dead, config, func(*message.Message) ([]*message.Message, error) { panic(errors.New("password=hunter2")) })
			msg := message.NewMessage("id", []byte("hunter2 in the payload stays"))
			msg.Metadata["secret"] = "hunter2"
			r.publish(msg)
			eventually(t, "the letter is placed", func() bool { return len(dead.in("orders.dlq")) == 1 })
			letter := dead.in("orders.dlq")[0]
			for key, value := range letter.Metadata {
				testkit.Check(t, !strings.Contains(value, "hunter2"), "%s still tells: %q", key, value)
			}
			testkit.Check(t, string(letter.Payload) == "hunter2 in the payload stays", "payload %q", letter.Payload)
		})
	}
}

// Feature D4: after the deadline of the message's context every sink still has its one try.
func TestPlaceAfterDeadlineTriesFallbacks(t *testing.T) {
	last := &sink{}
	queue := testkit.Must(
		NewQueue(&sink{refuse: func(int, string, *message.Message) error { return errors.New("down") }}, QueueConfig{
			Fallbacks: []Sink{{Publisher: last}},
		}))
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	testkit.NoError(t, queue.Place(message.NewMessageWithContext(ctx, "id", nil), errors.New("too slow")))
	testkit.Check(t, last.topics() == "unknown.dlq:1", "placed in %q", last.topics())
}

// Decision 11, promise P4: runtime.Goexit in what users plug in leaves the message nacked, so that it comes again, and
// never in between.
func TestQueueNacksGoexitInSink(t *testing.T) {
	dead := &sink{}
	exits := 0
	config := QueueConfig{Shared: settings.Shared{Privacy: masking(t, func(text string) string {
		if exits++; exits <= 2 {
			runtime.Goexit()
		}
		return text
	})}}
	for name, handle := range map[string]message.HandlerFunc{
		"error":  failing(errors.New("boom")),
		"goexit": func(*message.Message) ([]*message.Message, error) { runtime.Goexit(); return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			exits, dead.taken = 0, nil
			r := start(t, "orders", dead, config, handle)
			r.publish(message.NewMessage("id", nil))
			eventually(t, "it came again and is placed", func() bool { return len(dead.in("orders.dlq")) == 1 })
		})
	}
}
