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
	// listTimeout is the maximum time of ListWaiting.
	listTimeout = 10 * time.Second
	// maxListed is how many topics are asked about: each is some requests.
	maxListed = 1000
)

// ListWaiting returns the topics whose names begin with prefix and that hold messages which the consumer group of the
// same name has not acked. If no such group ever committed, it counts all messages. Package stages uses it to find
// stage topics without a handler. It counts offsets. It takes at most 10 s and asks about
// the first 1,000 topics. If the result is incomplete, it returns an error beside the result.
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
	for _, topic := range topics {
		n, err := admin.waiting(ctx, topic)
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

// waiting counts what the group named as the topic has not acked.
func (a admin) waiting(ctx context.Context, topic string) (total int, err error) {
	partitions, err := a.client.Partitions(topic)
	if err != nil {
		return 0, err
	}
	committed, err := a.committed(ctx, topic, map[string][]int32{topic: partitions})
	if err != nil {
		return 0, err
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
