package notify_test

import (
	"context"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/observe/notify"
)

// BenchmarkDeadLetter is what the hook adds to a dead letter in a storm of one cause.
func BenchmarkDeadLetter(b *testing.B) {
	n, err := notify.New(notify.Config{Sinks: []notify.Sink{func(context.Context, notify.Notice) error { return nil }}})
	if err != nil {
		b.Fatal(err)
	}
	config := spillway.Config{Publisher: nowhere{}}
	if err := n.Observe(&config); err != nil {
		b.Fatal(err)
	}
	channel, err := spillway.New(b.Context(), config)
	if err == nil {
		err = n.Watch(b.Context(), channel)
	}
	if err != nil {
		b.Fatal(err)
	}
	n.Start()
	defer n.Stop()
	l := letter("no_such_customer")
	l.Failure.LastFailedAt = time.Now()
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			config.Queue.Hooks.OnDeadLetter(context.Background(), l)
		}
	})
}
