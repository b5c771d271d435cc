package harness

import (
	"context"
	"sync"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Least is about the least that feeds Watermill's router from sarama: a message for each record, the next one after the
// ack, and a mark. It makes no context, and knows no nack: it is a measure, and no subscriber to work with.
type Least struct {
	Brokers []string
	Group   string

	closing context.CancelFunc
	running sync.WaitGroup
	output  chan *message.Message
}

var _ sarama.ConsumerGroupHandler = (*Least)(nil)

// Subscribe delivers the messages of topic from the oldest on.
func (l *Least) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	group, err := sarama.NewConsumerGroup(l.Brokers, l.Group, config)
	if err != nil {
		return nil, err
	}
	ctx, l.closing = context.WithCancel(ctx)
	l.output = make(chan *message.Message)
	l.running.Go(func() {
		defer close(l.output)
		defer func() { _ = group.Close() }()
		for ctx.Err() == nil && group.Consume(ctx, []string{topic}, l) == nil {
		}
	})
	return l.output, nil
}

// Close ends the subscription.
func (l *Least) Close() error {
	l.closing()
	l.running.Wait()
	return nil
}

// Setup does nothing.
func (l *Least) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup does nothing.
func (l *Least) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim delivers the records of a partition.
func (l *Least) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	ended := session.Context().Done()
	for record := range claim.Messages() {
		msg := message.NewMessage("", record.Value)
		for _, h := range record.Headers {
			if string(h.Key) == kafka.UUIDHeaderKey {
				msg.UUID = string(h.Value)
			} else {
				msg.Metadata[string(h.Key)] = string(h.Value)
			}
		}
		select {
		case l.output <- msg:
		case <-ended:
			return nil
		}
		select {
		case <-msg.Acked():
			session.MarkMessage(record, "")
		case <-ended:
			return nil
		}
	}
	return nil
}
