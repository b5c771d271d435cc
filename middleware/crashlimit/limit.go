package crashlimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/lifecycle"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/middleware/internal/deliveries"
	"github.com/watermill-spillway/spillway/observe"
)

// Config says after how many unfinished deliveries a message is dead-lettered. Its zero value is what most need.
type Config struct {
	// Max is the number of processes that may end while they handle a message. After that the message is dead-lettered.
	// Default: 3 by the Store's count, and 20 by Delivered's, where nacks count too. What is set is for both.
	Max int
	// Key returns what distinguishes messages, such as the broker's topic, partition and offset if messages have no id.
	// It must return the same for each delivery of a message, and not change the message. Default, and if Key returns
	// nothing or panics: the message's id. For a message without an id, a spillway.Channel takes the place that
	// Config.Queue.Origin knows. Otherwise a hash of payload and metadata is the key.
	Key func(*message.Message) string
	// Store counts unfinished deliveries, as sqlmarks.NewStore makes it. Default: in a spillway.Channel a store in its
	// DB; without one Delivered is required.
	Store Store
	// Heartbeat is how often a process shows the Store that it lives. Default: 2 seconds.
	Heartbeat time.Duration
	// Delivered returns how often the broker delivered the message before and had it back, for brokers that count, such
	// as wmamqp.DeliveryCount on quorum queues. It is called for every message. Default: none.
	//
	// Brokers also count deliveries that ended in a nack or with the connection, so three deployments would use up a
	// Max of 3. So the default of this count is 20, which is RabbitMQ 4's own limit by default. Max must be more than a
	// message can have of those. A limit of the queue's own must be higher, or none, since it drops the message.
	// wmamqp.DeliveryCount leaves out what this process gave back itself.
	//
	// The count has no bound if an idempotent receiver leases keys, because it gives duplicates back, or if a retry
	// stage may refuse what it is given. Use a Store then.
	Delivered func(*message.Message) (int, bool)
	// Hooks are called after events. Default: none.
	Hooks Hooks
	// Shared: Logger receives unclean ends, and a store that fails.
	observe.Shared
}

// Store counts unfinished deliveries in a database, where it is safe for concurrent use by several processes.
// sqlmarks.NewStore makes one.
type Store = deliveries.Store

// Hooks are called in the goroutine of the message, and must be quick. A panic of a hook is logged and changes nothing.
type Hooks struct {
	// OnUnfinished is called with a message of which earlier deliveries did not return, because their processes ended.
	// It is called once for each delivery, before the handler. By the broker's own count alone it is not called.
	OnUnfinished func(context.Context, Unfinished)
	// OnExceeded is called for each delivery that was refused.
	OnExceeded func(context.Context, Unfinished)
}

// Unfinished is a message that comes again after deliveries that did not return.
type Unfinished struct {
	// Consumer and Key name the message, as in the store.
	Consumer, Key string
	// Deliveries is how many deliveries before this one did not return.
	Deliveries int
	// Broker reports whether Deliveries is the broker's own count.
	Broker bool
}

const (
	defaultMax = 3
	// defaultBrokerMax is for a count that rises with each deployment, nack and lost connection too.
	defaultBrokerMax = 20
	// defaultQuietAfter is how long processes must run clean after an unclean end until they stop counting: longer than
	// a supervisor and the broker take to bring a message back after a crash.
	defaultQuietAfter = 10 * time.Minute
	// defaultAloneWait is how long a suspect waits for handlers that do not return, to be handled alone, and others
	// wait for it. After that they run beside each other, because handlers may wait for each other.
	defaultAloneWait = 30 * time.Second
	// defaultWithin bounds what a message, a heartbeat, and a router that starts or ends wait for.
	defaultWithin = 5 * time.Second
	// minHeartbeat keeps a duration from being meant in another unit.
	minHeartbeat = time.Millisecond
)

// options are a Config with what tests change too.
type options struct {
	Config
	quietAfter, aloneWait time.Duration
	within                time.Duration // bounds what the store is asked
}

func (s *options) setDefaults() {
	s.Max = cmp.Or(s.Max, defaultMax)
	s.Heartbeat = cmp.Or(s.Heartbeat, 2*time.Second)
	s.quietAfter = cmp.Or(s.quietAfter, defaultQuietAfter)
	s.aloneWait = cmp.Or(s.aloneWait, defaultAloneWait)
	s.within = cmp.Or(s.within, defaultWithin)
	s.Logger = logging.Wrap(s.Logger, nil)
}

func (s *options) validate() error {
	switch longest := s.quietAfter / staleAfter; {
	case s.Store == nil && s.Delivered == nil:
		return errors.New("crashlimit: Config.Store is nil, and Config.Delivered too, so nothing would count: set Store to what " +
			"sqlmarks.NewStore returned, or Delivered if the broker counts")
	case s.Max < 1:
		return fmt.Errorf("crashlimit: Config.Max is %d, so no message could be delivered: it must be at least 1",
			s.Max)
	case s.Heartbeat < minHeartbeat || s.Heartbeat > longest:
		return fmt.Errorf("crashlimit: Config.Heartbeat is %s: it must be %s to %s; each is a statement, and an unclean end shows "+
			"after %d of them", s.Heartbeat, minHeartbeat, longest, staleAfter)
	}
	return nil
}

// link makes the type that embeds it a part of chains.
type link = chain.Link

// Limit dead-letters messages that end the process. It is safe for concurrent use by any number of handlers and
// routers: one serves a whole process. A second one in the same process would be taken for another process.
type Limit struct {
	link
	config    options
	brokerMax int // what Max is for the broker's own count
	life      *lifecycle.Lifecycle
	admission admission
	removals  removals
	mode      atomic.Int32 // off, quiet or marking

	self    string // names this process
	outage  outage
	pending pending

	closing atomic.Bool // routers end: their last messages are being handled
	mu      sync.Mutex  // held while this process registers or signs off
	current *process    // nil while off
}

// New returns a Limit. A configuration with which nothing would count is an error that names the field.
func New(config Config) (*Limit, error) {
	return build(options{Config: config})
}

func build(config options) (*Limit, error) {
	if config.Store == nil && config.Delivered != nil && config.Heartbeat != 0 {
		return nil, fmt.Errorf("crashlimit: Config.Heartbeat is %s, and has no effect beside Delivered alone: the broker "+
			"counts; set Config.Store, or leave Heartbeat out", config.Heartbeat)
	}
	brokerMax := cmp.Or(config.Max, defaultBrokerMax)
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	l := &Limit{config: config, brokerMax: brokerMax, self: self}
	l.link = chain.LinkOf(l.step)
	l.life = lifecycle.New(l.start, l.stop)
	return l, nil
}

// Middleware counts the deliveries of a handler. Put it inside poison.Queue, which dead-letters what it refuses, and
// outside of every retry. Without Plugin the process registers when the first message comes, which then waits for up to
// 5 seconds, and its end is an unclean one. A store that is down is logged, asked again at every heartbeat, and stops
// no message.
func (l *Limit) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(l.step)(h)
}

// Plugin registers this process before a handler of the router subscribes, and signs it off after the last message. A
// store that is down at the start is an error of Router.Run. Give it to every router whose handlers have the
// middleware.
func (l *Limit) Plugin(router *message.Router) error {
	if l.config.Store == nil {
		return nil
	}
	return l.life.Plugin(router)
}

// bounded bounds what the store is asked.
func (l *Limit) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.config.within)
}

func (l *Limit) start() error {
	l.closing.Store(false)
	return l.begin(true)
}

func (l *Limit) stop() {
	l.closing.Store(true)
	if err := l.depart(); err != nil {
		eventCrashMessagesUnsigned.Write(l.config.Logger, err, nil)
	}
	l.signOffOrLog()
}

// signOffOrLog is for callers that cannot return an error.
func (l *Limit) signOffOrLog() {
	if err := l.signOffIfIdle(); err != nil {
		eventCrashProcessUnsigned.Write(l.config.Logger, err, nil)
	}
}
