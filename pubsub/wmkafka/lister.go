package wmkafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const (
	// listTimeout is how long ListWaiting takes at the most.
	listTimeout = 10 * time.Second
	// maxListed is how many topics are asked about: each is some requests.
	maxListed = 1000
)

// ListWaiting returns the topics whose names begin with prefix and hold messages that the consumer group of the same name
// has not acked, all that they hold where no such group ever committed: those of retry stages. It counts offsets, as
// Subscriber.Backlog does. It takes 10 s at the most and asks about the first 1,000 topics; where that, or a topic that
// cannot be asked about, leaves the answer incomplete, there is an error beside what was found.
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
	config, connections := through(p.config.Sarama)
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
		errs = append(errs, fmt.Errorf("%d topics begin so, and only the first %d were asked about", len(topics), maxListed))
		topics = topics[:maxListed]
	}
	waiting = make(map[string]int)
	for _, topic := range topics {
		n, err := admin.waiting(topic)
		if ctx.Err() != nil {
			return waiting, errors.Join(append(errs, fmt.Errorf("from %q on nothing is known: %w", topic, ctx.Err()))...)
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

// waiting counts what the group named as the topic has not acked.
func (a admin) waiting(topic string) (total int, err error) {
	partitions, err := a.client.Partitions(topic)
	if err != nil {
		return 0, err
	}
	committed, err := a.ListConsumerGroupOffsets(topic, map[string][]int32{topic: partitions})
	if err != nil {
		return 0, err
	}
	if committed.Err != sarama.ErrNoError {
		return 0, committed.Err
	}
	for _, partition := range partitions {
		n, err := behind(a.client, topic, partition, committed.GetBlock(topic, partition), sarama.OffsetOldest)
		if err != nil {
			return total, fmt.Errorf("partition %d: %w", partition, err)
		}
		total += n
	}
	return total, nil
}
