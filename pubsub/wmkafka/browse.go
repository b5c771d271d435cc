package wmkafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Browse calls each with the messages of topic that the consumer group has not acked and that are there when Browse
// begins, until each returns false. It joins no group and commits nothing. The messages come in order within a
// partition, one partition after the other. It is for the dry run of redrive drain. An error names the topic.
func (s *Subscriber) Browse(ctx context.Context, topic string, each func(*message.Message) (more bool)) error {
	if err := s.browse(ctx, topic, each); err != nil {
		return fmt.Errorf("wmkafka: browse %q for group %q: %w", topic, s.group, err)
	}
	return nil
}

func (s *Subscriber) browse(ctx context.Context, topic string, each func(*message.Message) bool) error {
	return s.unacked(ctx, topic, func(record *sarama.ConsumerMessage) bool {
		msg := read(s.config.Unmarshaler, record)
		msg.SetContext(&recordContext{Context: ctx, record: record, group: s.group})
		return each(msg)
	})
}

// unacked calls each for the records of topic that the group has not acked, until each returns false.
func (s *Subscriber) unacked(ctx context.Context, topic string, each func(*sarama.ConsumerMessage) bool) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	admin, err := connectAdmin(s.brokers, s.config.client)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, admin.Close()) }()
	partitions, err := admin.client.Partitions(topic)
	if err != nil {
		return err
	}
	committed, err := admin.committed(ctx, s.group, map[string][]int32{topic: partitions})
	if err != nil {
		return err
	}
	for _, partition := range partitions {
		first, end, err := unacked(admin.client, topic, partition, committed.GetBlock(topic, partition),
			s.config.client.Consumer.Offsets.Initial)
		more := true
		if err == nil {
			of := span{client: admin.client, topic: topic, partition: partition, next: first, end: end}
			more, err = of.each(ctx, each)
		}
		if err != nil {
			return fmt.Errorf("partition %d: %w", partition, err)
		}
		if !more {
			return nil
		}
	}
	return nil
}
