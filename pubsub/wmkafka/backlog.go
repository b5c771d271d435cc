package wmkafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/timing"
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

// inner is a Subscriber with the methods that only Spillway's own packages call.
type inner Subscriber

// Begun is inside.Group.Begun.
func (in *inner) Begun(ctx context.Context, topic string) (begun bool, err error) {
	s := (*Subscriber)(in)
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
		timing.Wait(ctx, retry.Backoff)
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

const (
	// listTimeout is the maximum time of ListWaiting.
	listTimeout = 10 * time.Second
	// maxListed is how many topics are asked about: each is some requests.
	maxListed = 1000
)

// ListWaiting returns the topics whose names begin with prefix and that hold messages which the consumer group of the
// same name has not acked. If no such group ever committed, it counts all messages. For the publisher of NewStages it is
// the group of all stages, or for stages of other services, one that has committed. Package stages uses it to find
// stage topics without a handler. It counts offsets. It takes at most 10 s and asks about the first 1,000 topics. If the
// result is incomplete, it returns an error beside the result.
func (p *Publisher) ListWaiting(ctx context.Context, prefix string) (map[string]int, error) {
	waiting, err := p.listWaiting(ctx, prefix)
	if err != nil {
		return waiting, fmt.Errorf("wmkafka: list what waits in topics that begin with %q: %w", prefix, err)
	}
	return waiting, nil
}

func (p *Publisher) listWaiting(ctx context.Context, prefix string) (waiting map[string]int, err error) {
	if p.closed.Load() {
		return nil, ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	config, connections := through(p.config.client)
	config.Metadata.Full = true // or the client knows no topic
	// The client knows no context, and its time-outs add up: at the end of ctx it loses its connections.
	defer context.AfterFunc(ctx, connections.cut)()
	admin, err := connectAdmin(p.brokers, config)
	if err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	defer func() { err = errors.Join(err, admin.Close()) }()
	topics, err := admin.client.Topics()
	if err != nil {
		return nil, err
	}
	topics = slices.DeleteFunc(topics, func(topic string) bool { return !strings.HasPrefix(topic, prefix) })
	slices.Sort(topics)
	var errs []error
	if len(topics) > maxListed {
		errs = append(errs, fmt.Errorf("%d topics have this prefix, and only the first %d were examined", len(topics),
			maxListed))
		topics = topics[:maxListed]
	}
	waiting = make(map[string]int)
	var groups []string
	if p.stages != "" {
		all, err := admin.ListConsumerGroups()
		if err != nil {
			errs = append(errs, fmt.Errorf("groups of other services are unknown: %w", err))
		}
		groups = append([]string{p.stages}, slices.Sorted(maps.Keys(all))...)
	}
	for _, topic := range topics {
		n, err := admin.waiting(ctx, topic, append(groups, topic))
		if ctx.Err() != nil {
			return waiting, errors.Join(append(errs,
				fmt.Errorf("topics from %q on were not examined: %w", topic, ctx.Err()))...)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", topic, err))
		}
		if n > 0 {
			waiting[topic] = n
		}
	}
	return waiting, errors.Join(errs...)
}

// waiting counts what the first of groups that has committed has not acked. Most topics without a commit are empty: then
// the others, which may be all groups of the cluster, are not asked.
func (a admin) waiting(ctx context.Context, topic string, groups []string) (total int, err error) {
	partitions, err := a.client.Partitions(topic)
	if err != nil {
		return 0, err
	}
	for i, group := range groups {
		committed, err := a.committed(ctx, group, map[string][]int32{topic: partitions})
		if err != nil {
			return 0, err
		}
		has := false
		for _, block := range committed.Blocks[topic] {
			has = has || block.Offset >= 0
		}
		if i > 0 && !has {
			continue
		}
		total = 0
		for _, partition := range partitions {
			n, err := behind(a.client, topic, partition, committed.GetBlock(topic, partition), sarama.OffsetOldest)
			if err != nil {
				return total, fmt.Errorf("partition %d: %w", partition, err)
			}
			total += n
		}
		if has || total == 0 {
			break
		}
	}
	return total, nil
}

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
