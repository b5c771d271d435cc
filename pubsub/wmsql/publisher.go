package wmsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
)

// PublisherConfig configures a Publisher. The zero value is valid.
type PublisherConfig struct {
	// Schema names the table of messages. Set it for tables that an application has already, such as those of
	// watermill-sql's own publisher, whose payloads are JSON. It must be watermill-sql's own schema for the database.
	// Default: that with payloads of any bytes, BYTEA or LONGBLOB.
	Schema wsql.SchemaAdapter
	// Timeout bounds a publish that is not in a message's transaction. Default: 30 s.
	Timeout time.Duration
	// Shared: Logger receives one line for each table that was created.
	observe.Shared
}

// Publisher writes messages into tables of watermill-sql's. A message with the context of one that a Subscriber on the
// same *sql.DB delivered is written in the transaction of the delivered message. So outputs and dead letters become
// visible if and when their source is acknowledged. If the handler acked its source itself, and the ack is committed,
// they are written in a transaction of their own. A Publisher is safe for concurrent use.
type Publisher struct {
	db      *sql.DB
	config  PublisherConfig
	dialect *dialect
	closed  atomic.Bool
	ready   sync.Map // topics whose tables are there
	// texts are the arguments of a row that go into columns of JSON or text: drivers that ask the server for no types
	// take []byte for bytea.
	texts []int
}

// NewPublisher returns a Publisher to the tables in db, a PostgreSQL, MySQL or MariaDB. It asks db which one it is. An
// error names the field of config that is wrong.
func NewPublisher(ctx context.Context, db *sql.DB, config PublisherConfig) (*Publisher, error) {
	set(&config.Timeout, 30*time.Second)
	config.Logger = logging.Wrap(config.Logger, nil)
	if ctx == nil {
		return nil, errNoContext
	}
	if db == nil {
		return nil, errors.New("wmsql: the db of NewPublisher is nil: give the database to publish to")
	}
	if config.Timeout < 0 {
		return nil, fmt.Errorf("wmsql: PublisherConfig.Timeout (%s) must not be negative", config.Timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	dialect, err := detect(ctx, db)
	if err != nil {
		return nil, err
	}
	p := &Publisher{db: db, config: config, dialect: dialect}
	if p.config.Schema, _, err = dialect.schemaOf("PublisherConfig.Schema", config.Schema, 0); err != nil {
		return nil, err
	}
	p.texts = dialect.texts(p.config.Schema)
	return p, nil
}

// Publish writes messages. It returns nil when they are committed, or when they are written in the transaction of the
// message that they come from. A missing table is an error. An error in that transaction undoes what Publish did and
// nothing else. If that message is not being handled any more, the error wraps sql.ErrTxDone.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if p.closed.Load() {
		return ErrClosed
	}
	if err := p.dialect.fit(topic, p.config.Schema); err != nil {
		return err
	}
	if i := slices.Index(messages, nil); i >= 0 {
		return fmt.Errorf("wmsql: publish to %q: message %d of %d is nil", topic, i+1, len(messages))
	}
	for len(messages) > 0 {
		d := p.deliveryOf(messages[0])
		n := 1
		for n < len(messages) && p.deliveryOf(messages[n]) == d {
			n++
		}
		if err := p.publish(d, topic, messages[:n]); err != nil {
			return fmt.Errorf("wmsql: publish to %q: %w", topic, err)
		}
		messages = messages[n:]
	}
	return nil
}

func (p *Publisher) deliveryOf(msg *message.Message) *delivery {
	if d := deliveryOf(msg.Context()); d != nil && d.db == p.db {
		return d
	}
	return nil
}

func (p *Publisher) publish(d *delivery, topic string, messages []*message.Message) error {
	for as := plain; ; as++ {
		err := p.publishAs(d, topic, messages, as)
		switch {
		case err == nil:
			return nil
		case p.dialect.refused(err) && as < metadata && len(messages) == 1 &&
			messages[0].Metadata[poison.KeyFailureClass] != "":
			// It is a dead letter, for which any form is better than none.
		case p.dialect.large(err):
			return fmt.Errorf("%w: %w", classify.ErrTooLarge, err)
		default:
			return err
		}
	}
}

func (p *Publisher) publishAs(d *delivery, topic string, messages []*message.Message, as form) error {
	queries, err := p.statements(topic, messages, as)
	if err != nil {
		return err
	}
	if err = p.write(d, queries); err != nil && p.dialect.missing(err) {
		return fmt.Errorf("there is no table; create it at start-up with InitializeTopics: %w", err)
	}
	return err
}

// write writes in the message's transaction, behind a savepoint: what fails must not fail the rest. Without a message's
// transaction it writes all or nothing too.
func (p *Publisher) write(d *delivery, queries []wsql.Query) error {
	if d != nil {
		err := d.write(func(tx *sql.Tx) error { return execute(context.Background(), tx, queries) })
		if !errors.Is(err, errSettled) {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.config.Timeout)
	defer cancel()
	if len(queries) == 1 {
		_, err := p.db.ExecContext(ctx, queries[0].Query, queries[0].Args...)
		return err
	}
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := execute(ctx, tx, queries); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Close makes each later Publish return ErrClosed. It does not close the database.
func (p *Publisher) Close() error {
	p.closed.Store(true)
	return nil
}

// InitializeTopics creates the tables of topics, if they do not exist, for payloads of any bytes. poison.Queue calls it
// at start-up for its topics; call it for those of outputs. It never creates a table in a message's transaction, which
// MySQL and MariaDB would commit.
func (p *Publisher) InitializeTopics(topics ...string) error {
	for _, topic := range topics {
		if err := p.initializeOnce(topic); err != nil {
			return fmt.Errorf("wmsql: create the table of %q: %w", topic, err)
		}
	}
	return nil
}

func (p *Publisher) initializeOnce(topic string) error {
	if _, ok := p.ready.Load(topic); ok {
		return nil
	}
	if err := p.dialect.fit(topic, p.config.Schema); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.config.Timeout)
	defer cancel()
	if err := create(ctx, p.dialect, p.db, p.config.Schema.SchemaInitializingQueries(topic)); err != nil {
		return err
	}
	p.ready.Store(topic, nil)
	eventTableExists.Write(p.config.Logger, nil, logging.Fields{logging.Topic: topic})
	return nil
}
