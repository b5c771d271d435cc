package wmsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/logging"
)

// ErrPositionAhead says that the position of the consumer group cannot be a position in the table: new messages would
// be passed over. Errors of Subscribe wrap it, and errors that a running subscription logs. See
// SubscriberConfig.RestartIfAhead.
var ErrPositionAhead = errors.New("the position of the consumer group is not of this table")

// trust is what reading a position shows of it. It costs no statement of its own.
type trust int

const (
	unknown trust = iota // there is no evidence against it
	sure                 // the row that was acknowledged last is there
	doubted              // it seems to be of another table
)

// verifyInterval is how often an idle subscription looks for what reading the position does not show.
const verifyInterval = time.Second

// verify returns an error that wraps ErrPositionAhead if the database shows that the position is not of this table.
func (s *Subscriber) verify(ctx context.Context, db *sql.DB, topic string, at position, trust trust) error {
	evidence, err := s.source.evidence(ctx, db, topic, at, trust)
	if err != nil {
		return fmt.Errorf("wmsql: compare the position of consumer group %q with the table of %q: %w",
			s.config.ConsumerGroup, topic, err)
	}
	if evidence == "" {
		return nil
	}
	return fmt.Errorf("wmsql: consumer group %q of %q: %w: %s; set SubscriberConfig.RestartIfAhead to deliver "+
		"everything in the table, or set the group's row in the table of positions to where the group should go on",
		s.config.ConsumerGroup, topic, ErrPositionAhead, evidence)
}

// verifyFirst is for Subscribe. With RestartIfAhead the first transaction acts on it, under the lock of the position.
func (s *Subscriber) verifyFirst(ctx context.Context, topic string) error {
	if s.config.RestartIfAhead {
		return nil
	}
	at, trust, err := s.source.position(ctx, s.db, topic, s.config.ConsumerGroup, "")
	if err != nil {
		return fmt.Errorf("wmsql: read the position: %w", err)
	}
	if trust == sure {
		return nil
	}
	err = s.verify(ctx, s.db, topic, at, trust)
	if errors.Is(err, ErrPositionAhead) {
		if _, failed := s.source.refuse(ctx, s.db, topic, s.config.ConsumerGroup, at); failed != nil {
			err = fmt.Errorf("%w; the refusal could not be recorded: %w", err, failed)
		}
	}
	return err
}

// suspected reports whether an idle subscription has to look at its position again, under the lock. It asks the
// database at most once in verifyInterval, unless reading the position gave a reason.
func (s *subscription) suspected(ctx context.Context, at position, trust trust) (bool, error) {
	switch {
	case trust == sure:
		return false, nil
	case trust == doubted:
	case time.Since(s.verified) < verifyInterval:
		return false, nil
	}
	s.verified = time.Now()
	err := s.of.verify(ctx, s.of.db, s.topic, at, trust)
	if errors.Is(err, ErrPositionAhead) {
		s.suspicious = true
		return true, nil
	}
	return trust == doubted && err == nil, err
}

// standsAhead looks again, with the position locked, and sets the group back to the start if the user wants that.
// Otherwise the subscription stands still: whatever it acknowledged would hide what it passed over.
func (s *subscription) standsAhead(ctx context.Context, t *transaction, at position,
	trust trust) (anew bool, err error) {
	if trust != doubted && !s.suspicious {
		return false, nil
	}
	group := s.of.config.ConsumerGroup
	ahead := s.of.verify(ctx, t.db, s.topic, at, trust)
	s.suspicious = errors.Is(ahead, ErrPositionAhead)
	if !s.suspicious {
		return false, ahead
	}
	if !s.of.config.RestartIfAhead {
		if done, err := s.of.source.refuse(ctx, t.db, s.topic, group, at); done || err != nil {
			return false, errors.Join(ahead, err, t.commit())
		}
		return false, ahead
	}
	for _, query := range s.of.source.restart(s.topic, group) {
		if _, err := t.db.ExecContext(ctx, query.Query, query.Args...); err != nil {
			return false, fmt.Errorf("wmsql: set the position back to the start: %w", err)
		}
	}
	if err := t.commit(); err != nil {
		return false, err
	}
	s.suspicious = false
	s.gap, s.trouble = gap{}, trouble{} // they are of other messages
	eventPositionReset.Write(s.logger, ahead, nil)
	return true, nil
}

// Adapters for Kafka, RabbitMQ and SQL.
var (
	// once: Expect duplicates, as `RestartIfAhead` asked.
	eventPositionReset = logging.ErrorEvent("position_reset",
		"The position was set back to the start: everything in the table is delivered")
	// each: Raise the ack deadline, or speed the handler up.
	eventHandlerTooSlow = logging.InfoEvent("handler_too_slow",
		"A handler did not settle its message in time: its transaction is rolled back, and its messages come again")
	// outage: Repair the database.
	eventConsumeFailed = logging.ErrorEvent("consume_failed",
		"Consuming failed: what was not committed comes again; it is tried again until it succeeds")
	// outage: nothing
	eventConsumeContinued = logging.InfoEvent("consume_continued", "Consuming goes on")
	// start: nothing
	eventTableExists = logging.InfoEvent("table_exists", "The table of the topic exists")
)
