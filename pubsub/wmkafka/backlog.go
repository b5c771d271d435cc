package wmkafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

// Backlog returns how many messages of topic the consumer group has not acked: what redrive.DrainTopicConfig.Backlog
// asks for. Where the group never committed it counts from where it would start. It reads these messages, because a
// topic that was compacted, or written to in transactions, has offsets without one. An error names the topic; ctx is
// heeded between requests to the brokers.
func (s *Subscriber) Backlog(ctx context.Context, topic string) (n int, err error) {
	err = s.unacked(ctx, topic, func(*sarama.ConsumerMessage) bool { n++; return true })
	if err != nil {
		return 0, fmt.Errorf("wmkafka: backlog of %q for group %q: %w", topic, s.group, err)
	}
	return n, nil
}

// Begun reports whether the consumer group has committed an offset of topic, or topic has no message. If it has not, a
// subscription would begin with the oldest message. So redrive.DrainTopic and letters.Store.Collect ask: offsets are
// gone if the group is deleted, and seven days after a process was killed that was its last member.
func (s *Subscriber) Begun(ctx context.Context, topic string) (begun bool, err error) {
	begun, err = s.begun(ctx, topic)
	if err != nil {
		return false, fmt.Errorf("wmkafka: the offsets of %q for group %q: %w", topic, s.group, err)
	}
	return begun, nil
}

func (s *Subscriber) begun(ctx context.Context, topic string) (begun bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	admin, err := connectAdmin(s.brokers, s.config.client)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, admin.Close()) }()
	partitions, err := admin.client.Partitions(topic)
	if err != nil {
		return false, err
	}
	committed, err := admin.committed(ctx, s.group, map[string][]int32{topic: partitions})
	if err != nil {
		return false, err
	}
	empty := true
	for _, partition := range partitions {
		block := committed.GetBlock(topic, partition)
		first, end, err := unacked(admin.client, topic, partition, block, s.config.client.Consumer.Offsets.Initial)
		if err != nil {
			return false, fmt.Errorf("partition %d: %w", partition, err)
		}
		if block.Offset >= 0 {
			return true, nil
		}
		empty = empty && first == end
	}
	return empty, nil
}

// committed returns the offsets of a group. A broker that has just become the group's coordinator is asked again, and
// so is a cluster that makes its topic of offsets just now.
func (a admin) committed(ctx context.Context, group string,
	of map[string][]int32) (*sarama.OffsetFetchResponse, error) {
	retry := a.client.Config().Admin.Retry
	for left := retry.Max; ; left-- {
		committed, err := a.ListConsumerGroupOffsets(group, of)
		if err == nil && committed.Err != sarama.ErrNoError {
			err = committed.Err
		}
		moved := errors.Is(err, sarama.ErrNotCoordinatorForConsumer) ||
			errors.Is(err, sarama.ErrConsumerCoordinatorNotAvailable) || errors.Is(err, sarama.ErrOffsetsLoadInProgress)
		if !moved || left <= 0 {
			return committed, err
		}
		wait.For(ctx, retry.Backoff)
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
		_ = a.client.RefreshCoordinator(group) // its error is that of the next try
	}
}

// unacked returns the offset behind what was committed, or at which a group that never committed would start, and the
// one behind the partition's last record.
func unacked(client sarama.Client, topic string, partition int32, committed *sarama.OffsetFetchResponseBlock,
	initial int64) (first, end int64, err error) {
	if committed == nil {
		return 0, 0, sarama.ErrIncompleteResponse
	}
	if committed.Err != sarama.ErrNoError {
		return 0, 0, committed.Err
	}
	end, err = client.GetOffset(topic, partition, sarama.OffsetNewest)
	if err != nil {
		return 0, 0, err
	}
	first = committed.Offset
	if first < 0 && initial == sarama.OffsetNewest {
		return end, end, nil
	}
	oldest, err := client.GetOffset(topic, partition, sarama.OffsetOldest)
	if err != nil {
		return 0, 0, err
	}
	return min(max(first, oldest), end), end, nil
}

// behind returns how many offsets a partition has behind what was committed.
func behind(client sarama.Client, topic string, partition int32, committed *sarama.OffsetFetchResponseBlock,
	initial int64) (int, error) {
	first, end, err := unacked(client, topic, partition, committed, initial)
	return int(end - first), err
}
