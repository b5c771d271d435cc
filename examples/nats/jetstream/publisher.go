package jetstream

import (
	"context"
	"errors"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	natsgo "github.com/nats-io/nats.go"
)

// Publisher is the publisher of watermill-nats, which makes sure of the streams of dead letters and stages when it is
// asked to.
type Publisher struct {
	*nats.Publisher
	js natsgo.JetStreamContext
}

// NewPublisher returns a publisher that waits until the server has stored each message.
func NewPublisher(config Config, logger watermill.LoggerAdapter) (*Publisher, error) {
	config = config.withDefaults()
	conn, err := config.connect()
	if err != nil {
		return nil, err
	}
	js, err := conn.JetStream(natsgo.MaxWait(config.PublishWait))
	if err != nil {
		conn.Close()
		return nil, err
	}
	pub, err := nats.NewPublisherWithNatsConn(conn, nats.PublisherPublishConfig{
		Marshaler:         config.Marshaler,
		SubjectCalculator: nats.DefaultSubjectCalculator,
		// No TrackMsgID: the server would confirm a letter that comes back within two minutes, and drop it as a
		// duplicate.
		JetStream: nats.JetStreamConfig{ConnectOptions: []natsgo.JSOpt{natsgo.MaxWait(config.PublishWait)}},
	}, logger)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &Publisher{Publisher: pub, js: js}, nil
}

// InitializeTopics makes a stream for each topic that has none. A stream that removes messages by itself is an error.
func (p *Publisher) InitializeTopics(topics ...string) error { return Create(p.js, topics...) }

// ListWaiting returns the topics whose names begin with prefix and hold messages that the group of the same name has
// not acked, with the number of these messages. Retry stages call it at their start.
func (p *Publisher) ListWaiting(ctx context.Context, prefix string) (map[string]int, error) {
	waiting := map[string]int{}
	options := []natsgo.JSOpt{natsgo.Context(ctx)}
	if strings.HasSuffix(prefix, ".") {
		options = append(options, natsgo.StreamListFilter(prefix+">"))
	}
	for stream := range p.js.StreamsInfo(options...) {
		for _, topic := range stream.Config.Subjects {
			if !strings.HasPrefix(topic, prefix) {
				continue
			}
			n := int(stream.State.Msgs)
			group, err := p.js.ConsumerInfo(stream.Config.Name, durable(topic), natsgo.Context(ctx))
			switch {
			case err == nil:
				n = int(group.NumPending) + group.NumAckPending
			case !errors.Is(err, natsgo.ErrConsumerNotFound):
				return nil, err
			}
			if n > 0 {
				waiting[topic] = n
			}
		}
	}
	return waiting, ctx.Err()
}
