package wmkafka

import (
	"context"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
)

// idleGroup is a session with endless records that marks nothing.
type idleGroup struct {
	sarama.ConsumerGroupSession
	sarama.ConsumerGroupClaim
	ctx     context.Context
	records chan *sarama.ConsumerMessage
}

func (g *idleGroup) Context() context.Context                        { return g.ctx }
func (g *idleGroup) Messages() <-chan *sarama.ConsumerMessage        { return g.records }
func (g *idleGroup) MarkMessage(*sarama.ConsumerMessage, string)     {}
func (g *idleGroup) MarkOffset(_ string, _ int32, _ int64, _ string) {}

// Promise P5: what a message that succeeds costs on its way through the subscriber.
func BenchmarkInTurn(b *testing.B) {
	config := SubscriberConfig{Sarama: SaramaSubscriberConfig()}
	sub, err := NewSubscriber([]string{"127.0.0.1:1"}, "g", config)
	if err != nil {
		b.Fatal(err)
	}
	s := newSubscription(sub, func() {})
	ctx, end := context.WithCancel(context.Background())
	g := &idleGroup{ctx: ctx, records: make(chan *sarama.ConsumerMessage, 256)}
	header := &sarama.RecordHeader{Key: []byte(kafka.UUIDHeaderKey), Value: []byte("0d8e3c9a-5f7e-4a50-9d8e-1f7ed0a6b8a1")}
	records := make([]sarama.ConsumerMessage, b.N)
	for i := range records {
		records[i] = sarama.ConsumerMessage{Topic: "orders", Offset: int64(i), Value: []byte("payload"), Headers: []*sarama.RecordHeader{header}}
	}
	done := make(chan error)
	go func() { done <- s.ConsumeClaim(g, g) }()
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		for i := range records {
			g.records <- &records[i]
		}
	}()
	for range b.N {
		(<-s.output).Ack()
	}
	b.StopTimer()
	end()
	close(g.records)
	<-done
}
