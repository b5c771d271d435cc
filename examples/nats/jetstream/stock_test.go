package jetstream

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// stock is watermill-nats' own subscriber, as its documentation shows it, with a durable name.
func (s *site) stock(options ...nats.SubOpt) (*wmnats.Subscriber, <-chan *message.Message) {
	s.Helper()
	sub := testkit.Must(wmnats.NewSubscriber(wmnats.SubscriberConfig{
		URL: s.config.URL, QueueGroupPrefix: "group", AckWaitTimeout: s.config.AckWait, Unmarshaler: wmnats.GobMarshaler{},
		JetStream: wmnats.JetStreamConfig{DurablePrefix: "group", SubscribeOptions: options},
	}, watermill.NopLogger{}))
	s.Cleanup(func() { _ = sub.Close() })
	messages := testkit.Must(sub.Subscribe(context.Background(), s.topic))
	return sub, messages
}

// Sentence K4: without ManualAck the client acks what is given back. What is lost is counted by id, over three closes.
func TestManualAck(t *testing.T) {
	const all = 20
	for name, c := range map[string]struct {
		options []nats.SubOpt
		loses   bool
	}{"without": {nil, true}, "with": {[]nats.SubOpt{nats.ManualAck()}, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.config.AckWait, s.config.MaxAckPending = time.Second, 4
			s.create()
			own, _ := s.open() // makes the consumer, which outlives the others
			testkit.NoError(t, own.Close())
			acked := map[string]bool{}
			for i := range all {
				s.send(fmt.Sprint(i))
			}
			for range 3 {
				sub, messages := s.stock(c.options...)
				for range 2 {
					msg := <-messages
					acked[msg.UUID] = true
					msg.Ack()
				}
				held := <-messages
				_ = sub.Close()
				held.Nack()
			}
			_, messages := s.stock(c.options...)
			for silent := false; !silent; {
				select {
				case msg := <-messages:
					acked[msg.UUID] = true
					msg.Ack()
				case <-time.After(2 * s.config.AckWait):
					left, err := own.js.ConsumerInfo(Name(s.topic), "group")
					silent = err != nil || int(left.NumPending)+left.NumAckPending == 0
				}
			}
			lost := all - len(acked)
			t.Logf("%d of %d lost", lost, all)
			if (lost > 0) != c.loses {
				t.Errorf("%s ManualAck %d of %d messages were lost", name, lost, all)
			}
		})
	}
}

// Why Subscriber makes the consumer itself: one that the client makes is deleted with the first subscription that ends,
// and the other members of the group wait for ever.
func TestClientDeletesItsConsumer(t *testing.T) {
	s := newSite(t)
	s.create()
	first, _ := s.stock(nats.ManualAck())
	s.stock(nats.ManualAck()) // another member
	testkit.NoError(t, first.Close())
	testkit.Eventually(t, "the consumer is gone", func() bool {
		_, err := s.js.ConsumerInfo(Name(s.topic), "group")
		return errors.Is(err, nats.ErrConsumerNotFound)
	})
}
