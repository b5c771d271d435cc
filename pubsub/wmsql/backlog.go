package wmsql

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/poison"
)

const (
	// listTimeout is how long ListWaiting takes at most.
	listTimeout = 10 * time.Second
	// maxListed is how many topics are asked about: each is a count of rows.
	maxListed = 1000
)

// tablesWithPayloads are those whose names begin with the first argument, so many. Tables of positions have no payload.
const (
	tablesWithPayloadsPostgres = `SELECT DISTINCT table_name::text FROM information_schema.columns
WHERE table_schema = ANY(current_schemas(false)) AND column_name = 'payload' AND starts_with(table_name::text, $1) ORDER BY 1 LIMIT $2`
	tablesWithPayloadsMySQL = `SELECT table_name FROM information_schema.columns
WHERE table_schema = DATABASE() AND column_name = 'payload' AND LOCATE(?, table_name) = 1 ORDER BY 1 LIMIT ?`
)

// ListWaiting returns the topics whose names begin with prefix and that hold waiting messages, with the number of them:
// those of retry stages. A message waits if the consumer group of the topic's name has not acknowledged it. If there is
// no such group all messages wait. Topics are the tables in the database, or the schemas of the search path, of the
// *sql.DB.
//
// ListWaiting takes 10 s at most and asks about the first 1,000 topics. If that, or a table that cannot be read, leaves
// the answer incomplete, it returns an error beside what it found. It needs watermill-sql's own adapters, and names of
// tables that end with their topics.
func (p *Publisher) ListWaiting(ctx context.Context, prefix string) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	waiting, err := p.listWaiting(ctx, prefix)
	if err != nil {
		return waiting, fmt.Errorf("wmsql: list what waits in topics that begin with %.100q: %w", prefix, err)
	}
	return waiting, nil
}

func (p *Publisher) listWaiting(ctx context.Context, prefix string) (map[string]int, error) {
	if p.closed.Load() {
		return nil, ErrClosed
	}
	source, known := p.dialect.source(p.config.Schema)
	if !known {
		return nil, fmt.Errorf("the adapter %T is not watermill-sql's own", p.config.Schema)
	}
	topics, err := p.topics(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var errs []error
	if len(topics) > maxListed {
		errs = append(errs, fmt.Errorf("more than %d topics begin so, and only these were asked about", maxListed))
		topics = topics[:maxListed]
	}
	waiting := make(map[string]int)
	for _, topic := range topics {
		n, err := p.waiting(ctx, source, topic)
		if ctx.Err() != nil {
			return waiting, errors.Join(append(errs,
				fmt.Errorf("the topics from %q on were not asked about: %w", topic, ctx.Err()))...)
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

// topics returns the topics that have a table: at most one more than maxListed.
func (p *Publisher) topics(ctx context.Context, prefix string) (topics []string, err error) {
	schema, ok := p.config.Schema.(interface{ MessagesTable(string) string })
	if !ok {
		return nil, fmt.Errorf("the adapter %T does not name its tables", p.config.Schema)
	}
	table := func(topic string) string { return strings.Trim(schema.MessagesTable(topic), "\"`") }
	begins := table(prefix)
	if strings.ContainsAny(begins, "\"`") || table(prefix+"x") != begins+"x" {
		return nil, fmt.Errorf("the table of topic %q is %s: its name does not end with the topic, which so cannot be told from it", prefix+"x", schema.MessagesTable(prefix+"x"))
	}
	query := tablesWithPayloadsMySQL
	if p.dialect.kind == database.Postgres {
		query = tablesWithPayloadsPostgres
	}
	rows, err := p.db.QueryContext(ctx, query, begins, maxListed+1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		rest, ok := strings.CutPrefix(name, begins) // MySQL compares without case
		if topic := prefix + rest; ok && p.dialect.fit(topic, p.config.Schema) == nil {
			topics = append(topics, topic)
		}
	}
	return topics, rows.Err()
}

// waiting counts what the group named as the topic has not acknowledged.
func (p *Publisher) waiting(ctx context.Context, source source, topic string) (n int, err error) {
	query := source.behind(topic, topic)
	if p.dialect.fit(topic, p.dialect.offsets) != nil { // another topic's table of positions would answer
		query = source.all(topic)
	}
	err = p.db.QueryRowContext(ctx, query.Query, query.Args...).Scan(&n)
	if err != nil && p.dialect.missing(err) { // the topic was never consumed, or it was dropped just now
		query = source.all(topic)
		err = p.db.QueryRowContext(ctx, query.Query, query.Args...).Scan(&n)
	}
	if err != nil && p.dialect.missing(err) {
		return 0, nil
	}
	return n, err
}

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
