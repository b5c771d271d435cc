package spillway_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-spillway/spillway"
)

type discard struct{}

func (discard) Publish(string, ...*message.Message) error { return nil }
func (discard) Close() error                              { return nil }

func benchMessage() *message.Message {
	msg := message.NewMessage(watermill.NewUUID(), make([]byte, 1024))
	for _, k := range []string{"tenant", "event-type", "trace-id", "content-type", "schema"} {
		msg.Metadata.Set(k, "value of "+k)
	}
	ctx, cancel := context.WithCancel(context.Background())
	_ = cancel
	msg.SetContext(ctx)
	return msg
}

var succeed = func(*message.Message) ([]*message.Message, error) { return nil, nil }

func BenchmarkHappyPathSpillway(b *testing.B) {
	ch, err := spillway.New(spillway.Config{Publisher: discard{}})
	if err != nil {
		b.Fatal(err)
	}
	h, msg := ch.Middleware(succeed), benchMessage()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h(msg); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHappyPathWatermill(b *testing.B) {
	pq, err := wm.PoisonQueue(discard{}, "poison")
	if err != nil {
		b.Fatal(err)
	}
	h := pq(wm.Retry{MaxRetries: 4, InitialInterval: 100 * time.Millisecond, MaxInterval: 10 * time.Second, Multiplier: 2}.Middleware(wm.Recoverer(succeed)))
	msg := benchMessage()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h(msg); err != nil {
			b.Fatal(err)
		}
	}
}
