package wmsql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/poison"
)

// browsePage is how many rows Browse reads in one statement.
const browsePage = 100

// Browse calls each with the messages of topic that the consumer group has not acknowledged and that are there when
// Browse begins, in their order, until each returns false. It locks and writes nothing. It is for the dry run of
// redrive drain. A call of the database by each needs a second connection.
func (s *Subscriber) Browse(ctx context.Context, topic string, each func(*message.Message) (more bool)) error {
	left, err := s.Backlog(ctx, topic)
	if err != nil {
		return err
	}
	from, err := s.acknowledged(ctx, topic)
	for err == nil && left > 0 {
		var entries []entry
		entries, err = newSubscription(s, topic).page(ctx, s.db, from, min(left, browsePage))
		if err != nil || len(entries) == 0 {
			break
		}
		for _, e := range entries {
			e.row.Msg.SetContext(ctx)
			if !each(e.row.Msg) {
				return nil
			}
		}
		from, left = entries[len(entries)-1].at, left-len(entries)
	}
	if err != nil {
		return fmt.Errorf("wmsql: browse %q for group %q: %w", topic, s.config.ConsumerGroup, err)
	}
	return nil
}

// acknowledged is how far the group is: nowhere, if it never consumed.
func (s *Subscriber) acknowledged(ctx context.Context, topic string) (position, error) {
	query, n := s.source.registered(topic, s.config.ConsumerGroup), 0
	err := s.db.QueryRowContext(ctx, query.Query, query.Args...).Scan(&n)
	if err != nil && s.dialect.missing(err) {
		return position{}, nil
	}
	if err != nil || n == 0 {
		return position{}, err
	}
	at, _, err := s.source.position(ctx, s.db, topic, s.config.ConsumerGroup, "")
	return at, err
}

// page reads rows behind a position.
func (s *subscription) page(ctx context.Context, db *sql.DB, from position, n int) (entries []entry, err error) {
	query := s.of.source.next(s.topic, from, n)
	err = database.Each(ctx, db, func(rows *sql.Rows) error {
		e, err := s.entry(rows)
		entries = append(entries, e)
		return err
	}, query.Query, query.Args...)
	return entries, err
}

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
// redrive.DrainTopicConfig.Backlog.
func (s *Subscriber) Backlog(ctx context.Context, topic string) (n int, err error) {
	if err := s.fit(topic); err != nil {
		return 0, err
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
