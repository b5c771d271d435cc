package wmkafka

import (
	"context"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

// endless is a session and a claim on a partition that has small records for ever, without a broker.
type endless struct {
	sarama.ConsumerGroupSession
	sarama.ConsumerGroupClaim
	ctx     context.Context
	records chan *sarama.ConsumerMessage
}

func (e *endless) Context() context.Context                    { return e.ctx }
func (e *endless) Messages() <-chan *sarama.ConsumerMessage    { return e.records }
func (e *endless) MarkMessage(*sarama.ConsumerMessage, string) {}
func (e *endless) MarkOffset(string, int32, int64, string)     {}
func (e *endless) feed(n int) {
	value, id := []byte("0000000"), &sarama.RecordHeader{Key: []byte(kafka.UUIDHeaderKey), Value: []byte("0d8e3c9a-5f7e-4a50-9d8e-1f7ed0a6b8a1")}
	headers := []*sarama.RecordHeader{id}
	for i := range n {
		select {
		case e.records <- &sarama.ConsumerMessage{Topic: "orders", Offset: int64(i), Value: value, Headers: headers}:
		case <-e.ctx.Done():
			return
		}
	}
}

// claimed is a Subscriber whose subscription has that claim.
type claimed struct{ *subscription }

func (c claimed) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return c.output, nil
}
func (c claimed) Close() error { return nil }

// alone is the least that a subscriber can do for a router: a message, and the wait for its ack.
type alone struct {
	n      int
	output chan *message.Message
}

func (a alone) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	go func() {
		value := []byte("0000000")
		for range a.n {
			msg := message.NewMessage("", value)
			a.output <- msg
			<-msg.Acked()
		}
		close(a.output)
	}()
	return a.output, nil
}
func (a alone) Close() error { return nil }

func benchSubscription(b *testing.B) (*subscription, func()) {
	sub, err := NewSubscriber([]string{"127.0.0.1:1"}, "g", SubscriberConfig{})
	if err != nil {
		b.Fatal(err)
	}
	s := newSubscription(sub, "orders", func() {})
	ctx, cancel := context.WithCancel(context.Background())
	e := &endless{ctx: ctx, records: make(chan *sarama.ConsumerMessage, 256)}
	go e.feed(b.N)
	ended := make(chan struct{})
	go func() {
		_ = s.ConsumeClaim(e, e)
		close(s.output)
		close(ended)
	}()
	return s, func() { cancel(); close(e.records); <-ended }
}

func route(b *testing.B, sub message.Subscriber, end func()) {
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	handled := 0
	router.AddConsumerHandler("bench", "orders", sub, func(*message.Message) error {
		if handled++; handled == b.N {
			close(done)
		}
		return nil
	})
	go router.Run(context.Background())
	<-done
	b.StopTimer()
	end()
	_ = router.Close()
}

// Promise P5: what a message that succeeds costs on its way through the subscriber, and how much of it is Watermill's router.
func BenchmarkDelivery(b *testing.B) {
	b.Run("subscriber", func(b *testing.B) {
		b.ReportAllocs()
		s, end := benchSubscription(b)
		for range b.N {
			(<-s.output).Ack()
		}
		end()
	})
	b.Run("router", func(b *testing.B) {
		b.ReportAllocs()
		s, end := benchSubscription(b)
		route(b, claimed{s}, end)
	})
	b.Run("router alone", func(b *testing.B) {
		b.ReportAllocs()
		route(b, alone{b.N, make(chan *message.Message)}, func() {})
	})
}
