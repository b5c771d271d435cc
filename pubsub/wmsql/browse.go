package wmsql

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

// browsePage is how many rows Browse reads in one statement.
const browsePage = 100

// Browse calls each with the messages of topic that the consumer group has not acknowledged and that are there when
// Browse begins, in their order, until each returns false. It locks and writes nothing. It is for the dry run of
// redrive drain. With adapters that are not watermill-sql's own it returns an error. If each calls the database, it
// needs a second connection.
func (s *Subscriber) Browse(ctx context.Context, topic string, each func(*message.Message) (more bool)) error {
	left, err := s.Backlog(ctx, topic)
	if err != nil {
		return err
	}
	from, err := s.acknowledged(ctx, topic)
	for err == nil && left > 0 {
		var entries []entry
		entries, err = newSubscription(s, topic).page(ctx, from, min(left, browsePage))
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
func (s *subscription) page(ctx context.Context, from position, n int) (entries []entry, err error) {
	query := s.of.source.next(s.topic, from, n)
	rows, err := s.of.db.QueryContext(ctx, query.Query, query.Args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		e, err := s.entry(rows)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, rows.Err()
}
