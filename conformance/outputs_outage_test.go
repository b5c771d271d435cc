//go:build !race

// watermill-amqp has a data race of its own when it dials again, so that make test runs this without the race detector.

package conformance_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// Feature D15, promises P1, P3, decision 13: the broker of the outputs crashes under load, and comes back after longer
// than the attempts take. The handlers have succeeded: no source is set aside, and each output is published.
func TestOutputsBrokerCrashes(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, topic string) message.Publisher{
		"rabbitmq": func(t *testing.T, topic string) message.Publisher {
			config := wmamqp.PublisherConfig{}
			config.AMQP.Queue.Arguments = queueType("classic") // a quorum queue that was just made takes long to come back
			pub, err := wmamqp.NewPublisher(services.AMQP(t), config)
			if err == nil {
				err = pub.InitializeTopics(topic)
			}
			testkit.NoError(t, err)
			services.KeepQueues(t)
			return pub
		},
		"kafka": func(t *testing.T, topic string) message.Publisher {
			pub, err := wmkafka.NewPublisher(services.Kafka(t), wmkafka.PublisherConfig{})
			if err == nil {
				err = pub.InitializeTopics(topic)
			}
			testkit.NoError(t, err)
			return pub
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := "outputs-" + rand.Text()[:12]
			pub := open(t, topic)
			dead, logger := &ids{}, watermill.NewCaptureLogger()
			channel := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: dead, Logger: logger}))
			published := &ids{}
			const all = 200
			source := &inMemory{n: all, acked: make(chan struct{})}
			stop := testkit.RunRouter(t, nil, func(router *message.Router) {
				channel.Attach(router)
				router.AddPublisherDecorators(func(pub message.Publisher) (message.Publisher, error) {
					return confirmed{pub, published}, nil
				})
				router.AddHandler("billing", "orders", source, topic, pub, func(msg *message.Message) ([]*message.Message, error) {
					time.Sleep(5 * time.Millisecond)
					return []*message.Message{message.NewMessage(msg.UUID, []byte("output"))}, nil
				})
			})
			testkit.Eventually(t, "outputs are published", func() bool { return published.len() >= 50 })
			services.Kill(t, name)
			time.Sleep(3 * time.Second) // longer than the five attempts
			services.Start(t, name)
			select {
			case <-source.acked:
			case <-time.After(3 * time.Minute):
				t.Error("not all sources were acked")
			}
			stop()
			if n := dead.len(); n > 0 {
				t.Errorf("%d healthy sources of %d are set aside", n, all)
			}
			for i := range all {
				if !published.has(fmt.Sprint(i)) {
					t.Errorf("output %d is not published", i)
				}
			}
			if t.Failed() {
				t.Log(logger.Captured()[watermill.ErrorLogLevel], logger.Captured()[watermill.InfoLogLevel])
			}
		})
	}
}

// ids are those of messages that were published.
type ids struct {
	mu sync.Mutex
	of map[string]bool
}

func (p *ids) Publish(_ string, messages ...*message.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string]bool{}
	}
	for _, msg := range messages {
		p.of[msg.UUID] = true
	}
	return nil
}

func (p *ids) Close() error { return nil }

func (p *ids) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.of)
}

func (p *ids) has(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[id]
}

// confirmed notes what a publisher has confirmed.
type confirmed struct {
	message.Publisher
	ids *ids
}

func (p confirmed) Publish(topic string, messages ...*message.Message) error {
	if err := p.Publisher.Publish(topic, messages...); err != nil {
		return err
	}
	return p.ids.Publish(topic, messages...)
}

// inMemory is a subscriber of n messages, eight at a time, each again until it is acked.
type inMemory struct {
	n     int
	acked chan struct{} // closed when all are
}

func (s *inMemory) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out, waiting := make(chan *message.Message), make(chan int, s.n)
	var all, each sync.WaitGroup
	for i := range s.n {
		waiting <- i
	}
	all.Add(s.n)
	for range 8 {
		each.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case i := <-waiting:
					msg := message.NewMessage(fmt.Sprint(i), []byte("payload"))
					msg.SetContext(ctx)
					select {
					case out <- msg:
					case <-ctx.Done():
						return
					}
					select {
					case <-msg.Acked():
						all.Done()
					case <-msg.Nacked():
						waiting <- i
					case <-ctx.Done():
					}
				}
			}
		})
	}
	go func() { all.Wait(); close(s.acked) }()
	go func() { each.Wait(); close(out) }()
	return out, nil
}

func (s *inMemory) Close() error { return nil }
