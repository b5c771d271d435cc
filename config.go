package spillway

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/ordered"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/crashlimit/sqlmarks"
	"github.com/watermill-spillway/spillway/middleware/outputs"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
)

// Config configures a Channel. Only DB or Publisher is required. The fields below Logger configure one part each. A
// part uses the Logger, and the classifier made of Classify, unless the part's own config has one.
type Config struct {
	// Service names the service whose keys and dead letters these are in DB: letters, digits and ". _ -", at most 100
	// bytes. It is part of each handler's identity there, so that a handler "billing" of another service is another
	// handler. Under another name, messages that were applied before are applied again if they come again. See
	// idempotency.NewStore. Required if DB is on a database server, and an error without DB.
	Service string
	// DB keeps what the channel keeps: the keys of applied messages, unless Idempotency is set, and the dead letters,
	// unless Publisher is set. It is a SQLite file, PostgreSQL, MySQL or MariaDB; New asks which. With DB each message
	// takes effect once: the handler writes through idempotency.Tx. The channel does not close DB. Default: none.
	DB *sql.DB
	// Publisher receives the dead letters. It must belong to the channel: the router closes a handler's publisher when
	// that handler stops. Default: the dead-letter store in DB, which Channel.Letters returns.
	Publisher message.Publisher
	// Idempotency makes each message take effect once. Set it for a store with settings of its own, such as
	// pgxstore.New or wmsql.Join. Default: the store in DB, or none without DB.
	Idempotency idempotency.Store
	// Tracer follows each attempt, and each publishing to a stage or of a dead letter. Package observe/telemetry has
	// the one for OpenTelemetry. Default: none.
	Tracer observe.Tracer
	// Privacy masks secrets in what is shown: texts of letters, log lines, errors, and what hooks are called with. It
	// never changes what is redriven. Give it rules with privacy.New; privacy.None() turns masking off. Default:
	// credentials are masked.
	Privacy *privacy.Redactor
	// Logger receives an Error line per dead letter and an Info line per retry, each with the cause. Payloads are never
	// logged. Default: the logger of the first router that Attach or Plugin receives. If only Middleware is used, the
	// channel logs nothing without a Logger.
	Logger watermill.LoggerAdapter

	// DrainTimeout is how long running handlers may finish when the router closes. Meanwhile no message is taken, and
	// what waits for a retry, a breaker or a stage goes back at once. Then the messages' contexts end. It must be below
	// the router's CloseTimeout. Negative means not at all. It needs Attach; without it the subscribers of this module
	// drain for 5 s, and others do not. Default: 5 s, or half of the router's CloseTimeout if that is less.
	DrainTimeout time.Duration
	// Naming names all topics that the channel derives from live topics. Use naming.Scheme{Style: naming.NATS} on NATS,
	// whose streams have no dots in their names. Queue.Naming and Stages.Naming, if set, take its place there. Give the
	// same Scheme to redrive.HandlerConfig. Default: <topic>.dlq, <topic>.invalid, and so on, as package naming says.
	Naming naming.Scheme
	// Classify configures how errors are judged.
	Classify classify.Config
	// Seal encrypts dead letters at rest, as package seal says: the payload and the producer's metadata, in every
	// dead-letter topic and in the dead-letter store in DB, whose drains and campaigns open them again. Give it to
	// redrive.Rules and to letters.NewStore too, where you make these yourself. Queue.Seal, if set, takes its place in
	// the queue. Default: none, and letters are readable.
	Seal *seal.Sealer
	// Queue configures where dead letters go and what they carry.
	Queue poison.QueueConfig
	// CrashLimit dead-letters a message that ended the process too often. Nil means no limit. &crashlimit.Config{}
	// counts in a store in DB, after 3 crashes. It needs DB, CrashLimit.Store, or a broker's own count
	// (CrashLimit.Delivered), and Attach or Plugin. Default: nil.
	CrashLimit *crashlimit.Config
	// Guard configures which messages never reach a handler.
	Guard GuardConfig
	// Stages retries the messages of the handlers of Channel.Stages later, while the messages behind go on. Nil means
	// no stages. A Subscriber and a Publisher are required. With Stages.Store, such as delay.NewStore(ctx, db,
	// service), messages wait in a database instead of in stage topics. It needs Attach or Plugin. Default: nil.
	Stages *stages.Config
	// Ordered lets the messages of one key take effect in the order of their source, also when one of them fails: it
	// and those behind it wait in DB, and messages of other keys go on. Nil means no order. &spillway.OrderedConfig{}
	// has useful delays. It needs DB, Attach, and subscribers that deliver the messages of a key one at a time: those of
	// wmkafka, wmamqp and wmsql, as docs/order.md sets them. It takes the place of Stages. Default: nil.
	Ordered *OrderedConfig
	// Retry configures how often, and when, a failed handler is called again at once.
	Retry middleware.RetryConfig
	// Breaker holds messages while what a handler needs is unavailable, instead of retrying and dead-lettering them one by
	// one. Nil means no breaker. &breaker.Config{} has useful defaults. A handler whose every message fails looks like
	// an outage: its messages wait too. Default: nil.
	Breaker *breaker.Config
	// Receiver configures how messages are recognised, for every handler of the channel, or by Receiver.Handlers for
	// one of them. It is an error without DB or Idempotency. Default: by the messages' ids, if there is DB or
	// Idempotency.
	Receiver *idempotency.ReceiverConfig
	// Purge deletes the receiver's old keys. Nil keeps keys for good. Purge.Retention is required. It needs Attach or
	// Plugin, and is an error without DB or Idempotency. Default: nil.
	Purge *idempotency.PurgeConfig
	// Retention deletes letters of the dead-letter store in DB, by status, class, reason, cause and age. Nil keeps
	// letters for good. Retention.Rules are required. It needs Attach or Plugin, and is an error without such a store.
	// Default: nil.
	Retention *letters.RetentionConfig
	// Outputs configures how often the publishing of produced messages is tried.
	Outputs outputs.Config
	// Observers follow what the channel does: metrics, traces and notices. Default: none.
	Observers []Observer
}

// GuardConfig says which messages do not reach the handler. The zero value lets every message pass.
type GuardConfig struct {
	// Required are metadata keys that a message must have, with a value that is not empty. A message that lacks one is
	// invalid, with reason missing_metadata.
	Required []string
	// ExpiresKey is the metadata key of the time, in RFC 3339, at which the message expires. An expired message is
	// permanent, with reason ttl_expired. A message without the key, or with a value that is no time, does not expire.
	ExpiresKey string
	// MaxHops is how many handlers with a guard a message may have come through. The metadata x-hop-count of outputs
	// carries the count on. A message with a higher count is permanent, with reason max_hop_count_exceeded: it goes in
	// circles. Default: no limit.
	MaxHops int
}

// own copies the parts that are on, which the caller may use again, and turns the Receiver on if there are keys.
func (c *Config) own() {
	c.CrashLimit, c.Stages, c.Breaker = copyOf(c.CrashLimit), copyOf(c.Stages), copyOf(c.Breaker)
	c.Receiver, c.Purge, c.Retention = copyOf(c.Receiver), copyOf(c.Purge), copyOf(c.Retention)
	c.Ordered = copyOf(c.Ordered)
	if c.Receiver == nil && c.keys() {
		c.Receiver = &idempotency.ReceiverConfig{}
	}
}

func copyOf[T any](part *T) *T {
	if part == nil {
		return nil
	}
	own := *part
	return &own
}

// keys reports whether the channel has a store of keys.
func (c *Config) keys() bool { return c.DB != nil || !safecall.IsNil(c.Idempotency) }

// check returns an error for a part that is on and would do nothing. What a part needs in its own fields, its
// constructor checks.
func (c *Config) check() error {
	if c.DB == nil && safecall.IsNil(c.Publisher) {
		return errors.New("Config.Publisher is nil: dead letters would be lost; set Config.DB, or Config.Publisher to a " +
			"publisher of its own")
	}
	if err := c.Naming.Validate(); err != nil {
		return fmt.Errorf("Config.Naming: %w", err)
	}
	limit := c.CrashLimit
	for _, part := range []struct {
		name      string
		on, works bool
		why       string
	}{
		{"CrashLimit", limit != nil, c.DB != nil || limit != nil && (limit.Store != nil || limit.Delivered != nil),
			"nothing would be counted; set Config.DB, Config.CrashLimit.Store or Config.CrashLimit.Delivered"},
		{"Ordered", c.Ordered != nil, c.keys(), "there is no database in which messages could wait; set Config.DB"},
		{"Receiver", c.Receiver != nil, c.keys(),
			"no message would be recognised; set Config.DB or Config.Idempotency"},
		{"Purge", c.Purge != nil, c.keys(), "there are no keys to purge; set Config.DB or Config.Idempotency"},
		{"Retention", c.Retention != nil, c.DB != nil && safecall.IsNil(c.Publisher),
			"the channel has no dead-letter store; " +
				"set Config.DB and no Config.Publisher, or use letters.NewRetention"},
	} {
		if part.on && !part.works {
			//lint:ignore ST1005 Config is a name
			return fmt.Errorf("Config.%s is set, and has no effect: %s", part.name, part.why)
		}
	}
	if c.Ordered != nil {
		if err := c.Ordered.validate(c); err != nil {
			return err
		}
	}
	if c.Receiver != nil && c.Receiver.Lease > 0 && limit != nil && limit.Delivered != nil {
		return errors.New("Config.Receiver.Lease and Config.CrashLimit.Delivered are both set: a message whose key is " +
			"leased is requeued, which a broker counts as a delivery; set Config.CrashLimit.Store instead of Delivered")
	}
	return nil
}

// share gives each part what is configured once for all parts.
func (c *Config) share() error {
	c.Logger = logging.Wrap(c.Logger, c.Privacy.Text)
	if logger := c.Logger; c.Classify.OnRulePanic == nil {
		c.Classify.OnRulePanic = func(text string, stack []byte) {
			eventRulePanicked.Write(logger, fmt.Errorf("%s\n%s", text, stack), nil)
		}
	}
	classifier, err := classify.New(c.Classify)
	if err != nil {
		return err
	}
	common := observe.Shared{Logger: c.Logger, Classifier: classifier, Privacy: c.Privacy, Tracer: c.Tracer}
	if c.Queue.Seal == nil {
		c.Queue.Seal = c.Seal
	}
	c.name(&c.Queue.Naming)
	parts := []*observe.Shared{&c.Queue.Shared, &c.Retry.Shared, &c.Outputs.Shared}
	if c.CrashLimit != nil {
		parts = append(parts, &c.CrashLimit.Shared)
		if c.Queue.Origin != nil {
			c.CrashLimit.Key = placed(c.CrashLimit.Key, c.Queue.Origin)
		}
	}
	if c.Stages != nil {
		c.name(&c.Stages.Naming)
		parts = append(parts, &c.Stages.Shared)
	}
	if c.Breaker != nil {
		parts = append(parts, &c.Breaker.Shared)
	}
	if c.Receiver != nil {
		parts = append(parts, &c.Receiver.Shared)
	}
	if c.Purge != nil {
		parts = append(parts, &c.Purge.Shared)
	}
	if c.Retention != nil {
		parts = append(parts, &c.Retention.Shared)
	}
	for _, part := range parts {
		fill(part, common)
	}
	return nil
}

// fill gives part the fields of common in place of those that are empty.
func fill(part *observe.Shared, common observe.Shared) {
	if part.Logger == nil {
		part.Logger = common.Logger
	}
	if part.Classifier == nil {
		part.Classifier = common.Classifier
	}
	if part.Privacy == nil {
		part.Privacy = common.Privacy
	}
	if part.Tracer == nil {
		part.Tracer = common.Tracer
	}
}

// name gives a part the Naming of the channel, unless it has its own.
func (c *Config) name(scheme *naming.Scheme) {
	if reflect.ValueOf(*scheme).IsZero() {
		*scheme = c.Naming
	}
}

// placed returns key, which for messages without a key and an id returns where the adapter read them.
func placed(key func(*message.Message) string,
	origin func(*message.Message) poison.Origin) func(*message.Message) string {
	return func(msg *message.Message) string {
		if key != nil {
			if id := key(msg); id != "" {
				return id
			}
		}
		if msg.UUID != "" {
			return ""
		}
		at := origin(msg)
		if at.Offset == "" {
			return ""
		}
		return at.Topic + "/" + at.Partition + "/" + at.Offset
	}
}

// openStores makes in Config.DB the stores that the config wants and does not give. It returns the dead-letter store if
// it made one.
func (c *Config) openStores(ctx context.Context) (made *letters.Store, err error) {
	if c.DB == nil {
		if c.Service != "" {
			return nil, errors.New("Config.Service is set without Config.DB: it names the service in the tables of that database; " +
				"set Config.DB, or give the Service to the stores that you make")
		}
		return nil, nil
	}
	if err := database.RequirePrimary(ctx, c.DB); err != nil {
		return nil, fmt.Errorf("Config.DB: %w", err)
	}
	if c.Idempotency == nil {
		if c.Idempotency, err = idempotency.NewStore(ctx, c.DB, c.Service); err != nil {
			return nil, err
		}
	}
	if limit := c.CrashLimit; limit != nil && limit.Store == nil && limit.Delivered == nil {
		if limit.Store, err = sqlmarks.NewStore(ctx, c.DB, c.Service); err != nil {
			return nil, err
		}
	}
	if c.Publisher == nil {
		if made, err = letters.NewStore(ctx, c.DB, letters.Config{Service: c.Service, Seal: c.Queue.Seal}); err != nil {
			return nil, err
		}
		c.Publisher = made
	}
	return made, nil
}

// Schema returns the SQL that makes all tables of Spillway, in the folders postgres, mysql (for MariaDB too) and
// sqlite. Run the files of one folder in the order of their names, with a migration tool or by hand, if the role of
// your programs may not create tables. Each file records its version in the table spillway_schema. A store then finds
// its table, and creates nothing.
//
// Otherwise you need none of them: each store creates its table, or upgrades the table of an earlier release with its
// rows. Versions go forward only: a store refuses a table that a later release has upgraded. Files of later releases
// have higher numbers. An upgrade of a large table is better made by hand, as its file says.
func Schema() fs.FS { return schema.Files() }

// Observer follows what a Channel does, such as a prom.Metrics, a telemetry.Telemetry or a notify.Notifier.
type Observer interface {
	// Observe is called by New with its copy of the Config. It puts the observer's hooks before those that Config has.
	Observe(config *Config) error
}

// observe has the observers put their hooks into the Config.
func (c *Config) observe() error {
	for i, o := range c.Observers {
		if safecall.IsNil(o) {
			return fmt.Errorf("Config.Observers[%d] is nil: check the error of its New", i)
		}
		if reflect.TypeOf(o).Comparable() && slices.Contains(c.Observers[:i], o) {
			return errors.New("Config.Observers has one observer twice, and everything would count twice: name each once")
		}
		if err := o.Observe(c); err != nil {
			return err
		}
	}
	return nil
}

// OrderedConfig configures the order of keys. The zero value is ready for use.
type OrderedConfig struct {
	// Delays are the waits of a message that fails again and again, in this order. Behind the last one it has failed
	// for good. Default: 5 s, 1 min, 10 min.
	Delays []time.Duration
	// Hold lets the messages of a key stand when one of them fails for good, until a person releases, skips or discards
	// it: redrive sequences. Set it if a later message is wrong without the earlier one. An invalid message never
	// holds. Default: it is dead-lettered, and the next one of its key goes on.
	Hold bool
}

// maxDelay catches a delay in a wrong unit.
const maxDelay = 366 * 24 * time.Hour

func (c *OrderedConfig) validate(config *Config) error {
	if config.Stages != nil {
		return errors.New("Config.Ordered and Config.Stages are both set: a message in a stage is overtaken by those " +
			"behind it; leave Stages out, and give their delays to Ordered.Delays")
	}
	for i, d := range c.Delays {
		if d < time.Millisecond || d > maxDelay {
			return fmt.Errorf("Config.Ordered.Delays[%d] is %s: it must be 1ms to %s", i, d, maxDelay)
		}
	}
	return nil
}

// order makes the part that keeps the order of keys beside the keys of the receiver.
func (ch *Channel) order(ctx context.Context, config *Config, receiver *idempotency.Receiver) error {
	delays := config.Ordered.Delays
	if len(delays) == 0 {
		delays = []time.Duration{5 * time.Second, time.Minute, 10 * time.Minute}
	}
	keys := keytable.ReceiverOf(receiver)
	store, err := sequence.Beside(ctx, keys)
	if err != nil {
		return fmt.Errorf("Config.Ordered: %w", err)
	}
	ch.listed = store.Listed()
	ch.ordered = ordered.New(ordered.Config{Delays: delays, Hold: config.Ordered.Hold, Keys: keys, Store: store,
		Queue: hidden.Of(ch.queue), StageOf: inside.Poison.StageOf, Shared: observe.Shared{Logger: config.Logger,
			Classifier: config.Retry.Classifier}})
	return nil
}

// offerOrder is the router's subscriber decorator that refuses subscribers without an order of keys.
func (ch *Channel) offerOrder(sub message.Subscriber) (message.Subscriber, error) {
	if ch.ordered == nil {
		return sub, nil
	}
	return offering{sub, ch.ordered}, nil
}

type offering struct {
	message.Subscriber
	part *ordered.Part
}

func (o offering) Subscribe(ctx context.Context, topic string) (messages <-chan *message.Message, err error) {
	ctx, offer := sequence.Offer(ctx, o.part.Ordering())
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	messages, err = o.Subscriber.Subscribe(ctx, topic)
	if err == nil && !offer.Taken {
		return nil, fmt.Errorf("spillway: Config.Ordered is set, and the subscriber of %q (%T) does not deliver the messages "+
			"of a key one at a time: use wmkafka.NewSubscriber with SubscriberConfig.InFlight of 2 or more, wmamqp.NewSubscriber "+
			"with SubscriberConfig.Key on a queue with a single active consumer, wmsql.NewSubscriber with SubscriberConfig.Key, "+
			"or a channel without Ordered for this handler", topic, o.Subscriber)
	}
	return messages, err
}

// Functions of yours.
var (
	// each: Repair the rule.
	eventRulePanicked = logging.ErrorEvent("rule_panicked", "A classification rule failed; it has no say")
)

// Stages and the delay store.
var (
	// start: Set `Config.Ordered` until the messages are gone.
	eventParkedLeft = logging.ErrorEvent("parked_left",
		"Messages wait in the order of their key, and this channel has no Ordered: later messages of their keys "+
			"overtake them. Set Config.Ordered until they are gone, or check that another instance has it")
	// start: Give one instance with these handlers a `Stages.Store` in `DB` until the messages are gone.
	eventStageRowsLeft = logging.ErrorEvent("stage_rows_left",
		"Messages wait in the delay store of DB, which this channel does not read: give Config.Stages a Store in DB "+
			"until they were published, or check that another instance does")
)

// Notices.
var (
	// start: Call `Watch` of the Notifier, and `router.AddPlugin(notifier.Plugin)`.
	eventNoticesOff = logging.ErrorEvent("notices_off",
		"A Notifier in Config.Observers sends nothing: no router has its Plugin")
)
