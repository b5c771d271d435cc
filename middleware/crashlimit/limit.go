package crashlimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/lifecycle"
	"github.com/watermill-spillway/spillway/internal/safecall"
)

// LimitConfig says how many deliveries a message may have that did not return, and who counts them. It needs a Store, or
// Delivered, or both.
type LimitConfig struct {
	// Store counts deliveries, for any pub/sub.
	Store Store
	// Service names the processes that belong together: an unclean end of one makes all of them count. Services that have
	// nothing to do with each other and share a database should each have a name. Default: all are one service.
	Service string
	// Max is the number of processes that may end while they handle a message. After that the message is set aside. Default: 3
	// by the Store's count, and 20 by Delivered's, where nacks count too.
	Max int
	// Consumer is who handles the messages. Default: the name of the router's handler.
	Consumer string
	// Key tells messages apart. It must return the same for each delivery of a message, and not change the message. Where
	// it returns nothing or panics, and by default, that is the message's id, its Coordinates, or a hash of payload and metadata.
	Key func(*message.Message) string
	// Coordinates returns where the broker has a message that has no id, as topic, partition and offset do, or nothing. It must
	// take them from what the adapter knows, not from the message's metadata, and return the same for each delivery.
	// Default: none. A spillway.Channel uses Config.Queue.Origin. Messages without both are told apart by what they hold.
	Coordinates func(*message.Message) string
	// Beat is how often a process shows that it lives. Default: 2 seconds.
	Beat time.Duration
	// QuietAfter is how long processes must run clean after an unclean end until they stop counting. It must be longer than
	// a supervisor and the broker take to bring a message back after a crash. Default: 10 minutes.
	QuietAfter time.Duration
	// AloneWait is how long a message that was in flight when a process ended waits for handlers that do not return, to be
	// handled alone, and others wait for it. After that they go on in company, because handlers may wait for each other. Where
	// handlers take longer than this, bystanders share the count of a deadly message. Default: 30 seconds.
	AloneWait time.Duration
	// Delivered tells how often the broker delivered the message before and had it back, for brokers that count, such as
	// wmamqp.DeliveryCount on quorum queues. It is asked for every message. Brokers count deliveries that ended in a nack or
	// with the connection too, so that three deployments would use up a Max of 3: the default for this count is 20, which is
	// RabbitMQ 4's own limit by default. Max must be more than a message can have of those, and a limit of the queue's own
	// higher or none, since that drops the message. It is without bound where an idempotent receiver leases keys, which gives
	// duplicates back, or a retry stage may refuse what it is given: use a Store there.
	Delivered func(*message.Message) (int, bool)
	// Logger is told of unclean ends and of a store that fails. Default: none.
	Logger watermill.LoggerAdapter
	// OnExceeded is called for each delivery that was refused, by many goroutines. A panic is logged.
	OnExceeded func(ctx context.Context, exceeded Exceeded)
}

// Exceeded tells of a message that was delivered too often.
type Exceeded struct {
	// Consumer and Key say which message, as the store does.
	Consumer, Key string
	// Deliveries is how many deliveries before this one did not return.
	Deliveries int
	// Broker tells whether that is the broker's own count.
	Broker bool
}

const (
	defaultMax = 3
	// defaultBrokerMax is for a count that rises with each deployment, nack and lost connection too.
	defaultBrokerMax = 20
)

func (c *LimitConfig) setDefaults() {
	if c.Max == 0 {
		c.Max = defaultMax
	}
	if c.Beat == 0 {
		c.Beat = 2 * time.Second
	}
	if c.QuietAfter == 0 {
		c.QuietAfter = 10 * time.Minute
	}
	if c.AloneWait == 0 {
		c.AloneWait = 30 * time.Second
	}
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
}

// minBeat keeps a beat from being meant in another unit.
const minBeat = time.Millisecond

func (c *LimitConfig) validate() error {
	if safecall.IsNil(c.Store) && c.Delivered == nil {
		return errors.New("crashlimit: LimitConfig has neither Store nor Delivered, and nobody would count: set Store, to Postgres(db), " +
			"MySQL(db) or SQLite(db), or Delivered where the broker counts")
	}
	if c.Store != nil && safecall.IsNil(c.Store) {
		return errors.New("crashlimit: LimitConfig.Store is a nil pointer: set it to Postgres(db), MySQL(db) or SQLite(db), or leave it out")
	}
	if c.Max < 1 {
		return fmt.Errorf("crashlimit: LimitConfig.Max is %d: no message could be delivered; it must be at least 1", c.Max)
	}
	if c.Beat < 0 || c.QuietAfter < 0 || c.AloneWait < 0 {
		return fmt.Errorf("crashlimit: LimitConfig.Beat (%s), QuietAfter (%s) and AloneWait (%s) must not be negative", c.Beat, c.QuietAfter, c.AloneWait)
	}
	if c.Beat < minBeat {
		return fmt.Errorf("crashlimit: LimitConfig.Beat is %s: each is a statement; it must be %s or more", c.Beat, minBeat)
	}
	if c.QuietAfter < staleAfter*c.Beat {
		return fmt.Errorf("crashlimit: LimitConfig.QuietAfter is %s and Beat %s: an unclean end shows after %d beats, and would be "+
			"forgotten before; QuietAfter must be at least %s", c.QuietAfter, c.Beat, staleAfter, staleAfter*c.Beat)
	}
	return nil
}

// Limit sets messages aside that end the process. It is safe for concurrent use by any number of handlers and routers: one
// serves a whole process, and would take a second one for another process.
type Limit struct {
	config    LimitConfig
	brokerMax int // what Max is for the broker's own count
	life      *lifecycle.Lifecycle
	room      room
	debts     debts
	mode      atomic.Int32 // off, quiet or marking

	self    string // names this process
	news    news
	outage  outage
	pending pending

	closing atomic.Bool
	leaving atomic.Bool // routers end: their last messages are being handled
	mu      sync.Mutex  // held while this process registers or signs off
	current *process    // nil while off
}

// initializeTimeout bounds how long NewLimit waits for the store.
const initializeTimeout = 30 * time.Second

// NewLimit returns a Limit after it has made sure that the store has its tables, which may take up to 30 seconds. A
// configuration with which nobody would count is an error that names the field.
func NewLimit(config LimitConfig) (*Limit, error) {
	brokerMax := cmp.Or(config.Max, defaultBrokerMax)
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	if config.Store != nil {
		ctx, cancel := context.WithTimeout(context.Background(), initializeTimeout)
		defer cancel()
		if err := config.Store.initialize(ctx); err != nil {
			return nil, fmt.Errorf("crashlimit: initialize the store: %w", err)
		}
	}
	l := &Limit{config: config, brokerMax: brokerMax, self: self}
	l.life = lifecycle.New(l.start, l.stop)
	return l, nil
}

// Middleware counts the deliveries of a handler. It belongs inside poison.Queue, which sets aside what it refuses, and
// outside of whatever retries. Without Plugin the process registers when the first message comes, which then waits for up
// to 5 seconds; a store that is down is logged, asked again at every beat, and stops no message.
func (l *Limit) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(l.step)(h)
}

// Plugin registers this process before a handler of the router subscribes, and signs it off after the last message. A
// store that is down at the start is an error of Router.Run. Give it to every router whose handlers have the middleware.
func (l *Limit) Plugin(router *message.Router) error {
	if l.config.Store == nil {
		return nil
	}
	return l.life.Plugin(router)
}

// Close signs this process off, for those who use the middleware without the plugin. Call it when the router is closed:
// where messages are still being handled, the last of them signs off. A process that ends without is an unclean end. What
// is handled after Close is counted too, and registers and signs off again. It may be called more than once.
func (l *Limit) Close() error {
	l.closing.Store(true)
	return errors.Join(l.depart(), l.signOffIfIdle())
}

func (l *Limit) start() error {
	l.closing.Store(false)
	l.leaving.Store(false)
	return l.begin(true)
}

func (l *Limit) stop() {
	l.closing.Store(true)
	l.leaving.Store(true)
	if err := l.depart(); err != nil {
		l.config.Logger.Error("crashlimit: the messages that are still being handled count as if this process had died", err, nil)
	}
	l.signOffOrLog()
}

// signOffOrLog is for where nobody can return an error.
func (l *Limit) signOffOrLog() {
	if err := l.signOffIfIdle(); err != nil {
		l.config.Logger.Error("crashlimit: this process is not signed off, so others will take its end for an unclean one", err, nil)
	}
}
