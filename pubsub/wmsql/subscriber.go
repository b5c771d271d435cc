package wmsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/observe"
)

// ErrClosed is returned by a Subscriber or Publisher after Close.
var ErrClosed = errors.New("wmsql: closed")

const (
	// batchTime is the time after which a transaction takes no further message: a few messages share its cost, and none
	// waits long for the commit of another one.
	batchTime = 5 * time.Millisecond
	// nackBackoff is the wait before a nacked message is delivered again. It doubles with each redelivery of the same
	// message, up to maxNackBackoff. Longer waits are for retry stages. The waits between tries of a database that fails
	// are the same ones. No transaction is open meanwhile.
	nackBackoff    = 100 * time.Millisecond
	maxNackBackoff = 5 * time.Second
	// settleGrace is how long a handler has to settle its message after the message's context ended.
	settleGrace = time.Second
	// maxDeliveries is how many deliveries a message has whose handler overruns the AckDeadline or interrupts the
	// transaction: enough for an outage of seconds, and few enough not to hold up the group for long. The count is this
	// process's alone.
	maxDeliveries = 5
)

// SubscriberConfig configures a Subscriber. The zero value is valid.
type SubscriberConfig struct {
	// ConsumerGroup names the group whose position is kept. Each group gets every message; the consumers of one group
	// take turns. Default: the group without a name, as with watermill-sql.
	ConsumerGroup string
	// Schema names the table of messages. Set it for tables that an application has already. It must be watermill-sql's
	// own schema for the database. Default: that with payloads of any bytes, BYTEA or LONGBLOB.
	Schema wsql.SchemaAdapter

	// RestartIfAhead delivers everything in the table if the group's position is not of this table. That is so after
	// PostgreSQL's transaction ids began again (a dump was restored, or replicated, into another server), or MySQL's
	// numbers did (TRUNCATE). Default: Subscribe returns an error that wraps ErrPositionAhead, and a running
	// subscription logs it and stands still, because new messages would be passed over. Set it for one start. Messages
	// that were handled come again.
	RestartIfAhead bool

	// Key returns the key of a message: of its metadata, or of its payload. spillway.Config.Ordered needs it, and
	// nothing else reads it. "" is no key, and no order. If Key panics the topic waits, and the log says so.
	Key func(*message.Message) string

	// Batch is how many messages are consumed in one transaction at most. A transaction takes none after its first 5
	// ms. With 1 no message is rolled back because of another one. Default: 10.
	Batch int
	// AckDeadline is how long a handler has for a message. Then the message's context ends, and one second later the
	// transaction is rolled back. Raise it for handlers that take longer. If it is negative there is no deadline: a
	// handler that hangs stops its group. Default: 30 s.
	AckDeadline time.Duration
	// PollInterval is the wait after a query that found no message. Default: 100 ms.
	PollInterval time.Duration
	// GapWait is for MySQL and MariaDB, where messages of concurrent publishers become visible out of order. It is the
	// wait for a missing number before the number is passed over. Default: 50 ms.
	GapWait time.Duration
	// Shared: Logger receives what happens to subscriptions.
	observe.Shared

	// What is below is the constant of the same name, and something else in tests.
	batchTime, nackBackoff, maxNackBackoff, settleGrace time.Duration
	maxDeliveries                                       int
}

func (c *SubscriberConfig) setDefaults() {
	set(&c.Batch, 10)
	set(&c.batchTime, batchTime)
	set(&c.AckDeadline, 30*time.Second)
	set(&c.maxDeliveries, maxDeliveries)
	set(&c.settleGrace, settleGrace)
	set(&c.nackBackoff, nackBackoff)
	set(&c.maxNackBackoff, max(maxNackBackoff, c.nackBackoff))
	set(&c.PollInterval, 100*time.Millisecond)
	set(&c.GapWait, 50*time.Millisecond)
	c.Logger = logging.Wrap(c.Logger, nil)
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c *SubscriberConfig) validate() error {
	switch {
	case len(c.ConsumerGroup) > 255:
		return fmt.Errorf("wmsql: SubscriberConfig.ConsumerGroup is %d bytes long, and the table of positions takes 255",
			len(c.ConsumerGroup))
	case c.Batch < 1:
		return fmt.Errorf("wmsql: SubscriberConfig.Batch is %d: it must be at least 1; leave it out for 10", c.Batch)
	case min(c.PollInterval, c.GapWait) < 0:
		return fmt.Errorf("wmsql: SubscriberConfig.PollInterval (%s) and GapWait (%s) must not be negative",
			c.PollInterval, c.GapWait)
	}
	return nil
}

// Subscriber consumes topics that are tables of watermill-sql's. What is written for a message through Join and a
// Publisher commits with its acknowledgement, or not at all. It is safe for concurrent use.
type Subscriber struct {
	db      *sql.DB
	config  SubscriberConfig
	dialect *dialect
	source  source
	joining sync.Mutex
	joined  map[string]*joinedStore // by service

	lock    sync.Mutex
	closed  bool
	stops   map[*subscription]context.CancelFunc
	running sync.WaitGroup
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

var errNoContext = errors.New("wmsql: the context is nil: give context.Background() if there is no other")

// startTimeout bounds what constructors ask of the database.
const startTimeout = 30 * time.Second

// NewSubscriber returns a Subscriber for the tables in db, a PostgreSQL, MySQL or MariaDB. It asks db which one it is.
// An error names the field of config that is wrong.
//
// Each subscription holds one connection of db most of the time, also while it waits for its turn in the group. If
// SetMaxOpenConns leaves no others, a handler that uses db itself waits for ever.
func NewSubscriber(ctx context.Context, db *sql.DB, config SubscriberConfig) (*Subscriber, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if db == nil {
		return nil, errors.New("wmsql: the db of NewSubscriber is nil: give the database that the messages are in")
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	dialect, err := detect(ctx, db)
	if err != nil {
		return nil, err
	}
	s := &Subscriber{db: db, config: config, dialect: dialect, stops: map[*subscription]context.CancelFunc{}}
	if s.config.Schema, s.source, err = dialect.schemaOf("SubscriberConfig.Schema", config.Schema, config.Batch); err != nil {
		return nil, err
	}
	return s, nil
}

// Subscribe delivers the messages of topic, one at a time, until ctx ends or the Subscriber is closed. Then the channel
// is closed. Each call adds a consumer to the group, with a connection of its own. Subscribe creates the tables of the
// topic if they do not exist.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if ctx == nil {
		return nil, errors.New("wmsql: the context of Subscribe is nil: give context.Background() if there is no other")
	}
	if err := s.prepare(ctx, topic); err != nil {
		return nil, err
	}
	order, err := s.takeOrder(ctx, topic)
	if err != nil {
		return nil, err
	}
	sub, drain := newSubscription(s, topic), graceful.Begin(ctx)
	sub.drain, sub.order = drain, order
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.closed {
		drain.End()
		return nil, ErrClosed
	}
	s.stops[sub] = drain.Stop
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		defer s.forget(sub)
		defer drain.End()
		sub.run(drain.Taking)
	}()
	return sub.out, nil
}

func (s *Subscriber) forget(sub *subscription) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.stops, sub)
}

// RedeliveryTime returns SubscriberConfig.AckDeadline, after which the message's transaction is rolled back. It returns
// 0 if there is no deadline.
func (s *Subscriber) RedeliveryTime() time.Duration { return max(s.config.AckDeadline, 0) }

// Close takes no more messages, and returns when all subscriptions have ended. A busy handler may finish, for 5 s or
// spillway.Config.DrainTimeout, and its message commits. Then the message's context ends, and the handler has one
// second more. After that the transaction is rolled back, with the messages that were acked in it
// before, and late statements are refused. If the server does not answer, Close waits three seconds at most.
// Close does not close the database.
func (s *Subscriber) Close() error {
	s.lock.Lock()
	s.closed = true
	for _, stop := range s.stops {
		stop()
	}
	s.lock.Unlock()
	s.running.Wait()
	return nil
}
