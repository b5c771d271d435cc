package idempotency_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// feed delivers messages, so many at a time, and each again until it is acked.
type feed struct {
	messages []*message.Message
	inFlight int
	ended    chan struct{} // all are acked
}

func (f *feed) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	waiting := make(chan *message.Message, len(f.messages))
	for _, msg := range f.messages {
		waiting <- msg
	}
	var all, each sync.WaitGroup
	all.Add(len(f.messages))
	for range f.inFlight {
		each.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case msg := <-waiting:
					if deliver(ctx, out, msg) {
						all.Done()
					} else {
						waiting <- msg
					}
				}
			}
		})
	}
	go func() { all.Wait(); close(f.ended) }()
	go func() { each.Wait(); close(out) }()
	return out, nil
}

func (f *feed) Close() error { return nil }

func deliver(ctx context.Context, out chan<- *message.Message, msg *message.Message) (acked bool) {
	delivery := msg.Copy()
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	delivery.SetContext(within)
	select {
	case out <- delivery:
	case <-ctx.Done():
		return false
	}
	select {
	case <-delivery.Acked():
		return true
	case <-delivery.Nacked():
	case <-ctx.Done():
	}
	return false
}

// taken keeps the ids of what is published.
type taken struct {
	mu  sync.Mutex
	ids []string
}

func (p *taken) Publish(_ string, messages ...*message.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, msg := range messages {
		p.ids = append(p.ids, msg.UUID)
	}
	return nil
}

func (p *taken) Close() error { return nil }

func (p *taken) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.ids)
}

// Promises P1, P3, P7, decision 13: a database that crashes under load, with retries as they are by default, and comes back
// after longer than they take: no healthy message among the dead letters, none lost, none doubled. The log has a line for the
// begin of the outage and one for its end.
func TestStoreCrashesUnderLoad(t *testing.T) {
	for _, d := range databases {
		server := map[string]string{"postgres": "postgres", "optimistic": "postgres", "mariadb": "mariadb"}[d.name]
		if server == "" {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			c := newCell(t, d)
			dead, outputs, logger := &taken{}, &taken{}, &testkit.Log{}
			channel, err := spillway.New(t.Context(), spillway.Config{
				Publisher: dead, Logger: logger, Idempotency: c.store(c.db),
				Receiver: idempotency.ReceiverConfig{Optimistic: d.optimistic},
			})
			if err != nil {
				t.Fatal(err)
			}
			source := &feed{inFlight: 8, ended: make(chan struct{})}
			for i := range 400 {
				source.messages = append(source.messages, newMessage(fmt.Sprintf("m-%d", i)))
			}
			router, err := message.NewRouter(message.RouterConfig{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			channel.Attach(router)
			reached, once := make(chan struct{}), sync.Once{}
			router.AddHandler("billing", "orders", source, "invoices", outputs, func(msg *message.Message) ([]*message.Message, error) {
				time.Sleep(20 * time.Millisecond) // so that some are between two statements
				if _, err := c.write(msg); err != nil && len(msg.UUID)%2 == 0 {
					panic(err) // as a Must does
				} else if err != nil {
					return nil, err
				}
				if len(outputs.all()) > 100 {
					once.Do(func() { close(reached) })
				}
				return []*message.Message{message.NewMessage("", nil)}, nil
			})
			stopped := make(chan error, 1)
			go func() { stopped <- router.Run(t.Context()) }()
			<-reached
			services.Kill(t, server)
			time.Sleep(4 * time.Second) // longer than the five attempts
			services.Start(t, server)
			select {
			case <-source.ended:
			case <-time.After(3 * time.Minute):
				t.Error("not all messages were acked")
			}
			if err := router.Close(); err != nil {
				t.Error(err)
			}
			if err := <-stopped; err != nil {
				t.Error(err)
			}
			if ids := dead.all(); len(ids) > 0 {
				t.Errorf("%d healthy messages of %d are dead letters", len(ids), len(source.messages))
			}
			c.rows(400, 400)
			unique := outputs.all()
			slices.Sort(unique)
			if unique = slices.Compact(unique); len(unique) != 400 {
				t.Errorf("%d outputs with ids of their own", len(unique))
			}
			if lines := logger.Errors(); len(lines) == 0 || len(lines) > 3 {
				t.Errorf("%d errors are logged: %v", len(lines), lines)
			}
		})
	}
}
