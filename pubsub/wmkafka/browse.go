package wmkafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
)

// browseIdle is the time without a record after which a partition counts as read. Its last offsets may have none: those
// of transactions, for example.
const browseIdle = 5 * time.Second

// Browse calls each with the messages of topic that the consumer group has not acked and that are there when Browse
// begins, until each returns false. It joins no group and commits nothing. The messages come in order within a
// partition, one partition after the other. It is for the dry run of redrive drain. An error names the topic.
func (s *Subscriber) Browse(ctx context.Context, topic string, each func(*message.Message) (more bool)) error {
	if err := s.browse(ctx, topic, each); err != nil {
		return fmt.Errorf("wmkafka: browse %q for group %q: %w", topic, s.group, err)
	}
	return nil
}

func (s *Subscriber) browse(ctx context.Context, topic string, each func(*message.Message) bool) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	admin, err := connectAdmin(s.brokers, s.config.client)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, admin.Close()) }()
	consumer, err := sarama.NewConsumerFromClient(admin.client)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, consumer.Close()) }()
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
		if err == nil && first < end {
			more, err = s.browsePartition(ctx, consumer, topic, partition, first, end, each)
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

// browsePartition reads the records from first to before end.
func (s *Subscriber) browsePartition(ctx context.Context, consumer sarama.Consumer, topic string, partition int32,
	first, end int64,
	each func(*message.Message) bool,
) (more bool, err error) {
	reading, err := consumer.ConsumePartition(topic, partition, first)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, reading.Close()) }()
	idle := time.NewTimer(browseIdle)
	defer idle.Stop()
	for {
		select {
		case record, open := <-reading.Messages():
			if !open || record.Offset >= end {
				return true, nil
			}
			msg := read(s.config.Unmarshaler, record)
			msg.SetContext(&recordContext{Context: ctx, record: record, group: s.group})
			if !each(msg) {
				return false, nil
			}
			if record.Offset == end-1 {
				return true, nil
			}
			idle.Reset(browseIdle)
		case <-idle.C:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}
