package wmsql

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/poison"
)

// Origin returns where a message came from: topic, offset, consumer group, id. It is for poison.QueueConfig.Origin. Of
// a message of watermill-sql's own subscriber only the topic of its handler and the id are known.
func Origin(msg *message.Message) poison.Origin {
	if msg == nil {
		return poison.Origin{}
	}
	origin := poison.Origin{MessageID: msg.UUID, Topic: message.SubscribeTopicFromCtx(msg.Context())}
	if d := deliveryOf(msg.Context()); d != nil {
		origin.Topic, origin.ConsumerGroup = d.topic, d.group
		origin.Offset = strconv.FormatInt(d.at.offset, 10)
	}
	return origin
}

// Backlog returns how many messages of topic the consumer group has not acknowledged. It is for
// redrive.DrainTopicConfig.Backlog. With a Schema that is not watermill-sql's own it returns an error.
func (s *Subscriber) Backlog(ctx context.Context, topic string) (n int, err error) {
	if err := s.fit(topic); err != nil {
		return 0, err
	}
	if s.source == nil {
		return 0, fmt.Errorf("wmsql: backlog of %q: the adapter %T is not watermill-sql's own", topic, s.config.Schema)
	}
	query := s.source.behind(topic, s.config.ConsumerGroup)
	err = s.db.QueryRowContext(ctx, query.Query, query.Args...).Scan(&n)
	if err != nil && s.dialect.missing(err) { // the topic was never consumed: there are no positions
		query = s.source.all(topic)
		err = s.db.QueryRowContext(ctx, query.Query, query.Args...).Scan(&n)
	}
	if err != nil {
		return 0, fmt.Errorf("wmsql: backlog of %q for group %q: %w", topic, s.config.ConsumerGroup, err)
	}
	return n, nil
}
