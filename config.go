package spillway

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
	"github.com/watermill-spillway/spillway/settings"
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
	// Idempotency makes each message take effect once. Set it for a store with settings of its own, such as pgxstore.New
	// or wmsql.Join. Default: the store in DB, or none without DB.
	Idempotency idempotency.Store
	// Tracer follows each attempt, and each publishing to a stage or of a dead letter. Package observe/telemetry has the
	// one for OpenTelemetry. Default: none.
	Tracer observe.Tracer
	// Privacy masks secrets in what is shown: texts of letters, log lines, errors, and what hooks are called with. It
	// never changes what is redriven. Give it rules with privacy.New; privacy.None() turns masking off. Default:
	// credentials are masked.
	Privacy *privacy.Redactor
	// Logger receives an Error line per dead letter and an Info line per retry, each with the cause. Payloads are never
	// logged. Default: the logger of the first router that Attach or Plugin receives. If only Middleware is used, the
	// channel logs nothing without a Logger.
	Logger watermill.LoggerAdapter

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
	// CrashLimit configures how often a message may end the process before the message is dead-lettered. It takes effect
	// with a Max and DB, with a CrashStore, or with a broker's own count (Delivered). It needs Attach or Plugin.
	CrashLimit crashlimit.Config
	// CrashStore counts unfinished deliveries. Default: a store in DB if CrashLimit.Max is set, or none.
	CrashStore *crashlimit.Store
	// Guard configures which messages never reach a handler.
	Guard middleware.GuardConfig
	// Stages configures how the handlers of Channel.Stages are retried later, while the messages behind go on. It takes
	// effect with a Subscriber, and needs Attach or Plugin.
	Stages stages.Config
	// StagesInDB makes messages wait for their stage in DB instead of in stage topics. Set Stages.Store instead for a
	// store elsewhere. Default: false.
	StagesInDB bool
	// Retry configures how often, and when, a failed handler is called again at once.
	Retry middleware.RetryConfig
	// Breaker holds messages while what a handler needs is away, instead of retrying and dead-lettering them one by one.
	// Nil means no guard. &breaker.Config{} has useful defaults. A handler whose every message fails looks like an
	// outage: its messages wait too. Default: nil.
	Breaker *breaker.Config
	// Receiver configures how messages are recognised, for every handler of the channel, or by Receiver.Handlers for one
	// of them. It takes effect with DB or Idempotency.
	Receiver idempotency.ReceiverConfig
	// Purge configures how long the receiver keeps keys. It takes effect with a Retention, and needs Attach or Plugin.
	// Default: keys are kept for good.
	Purge idempotency.PurgeConfig
	// Retention configures how long the dead-letter store in DB keeps letters, by status, class, reason, cause and age. It
	// takes effect with Rules, and needs Attach or Plugin. Default: letters are kept for good.
	Retention letters.RetentionConfig
	// Outputs configures how often the publishing of produced messages is tried.
	Outputs middleware.OutputsConfig
	// Observers follow what the channel does: metrics, traces and notices. Default: none.
	Observers []Observer
}

// check returns an error for a part that is configured and would do nothing.
func (c *Config) check() error {
	if c.DB == nil && safecall.IsNil(c.Publisher) {
		return errors.New("Config.Publisher is nil: dead letters would be lost; set Config.DB, or Config.Publisher to a " +
			"publisher of its own")
	}
	keys := c.Idempotency != nil || c.DB != nil
	if err := c.Naming.Validate(); err != nil {
		return fmt.Errorf("Config.Naming: %w", err)
	}
	if err := c.checkUnused(); err != nil {
		return err
	}
	if c.StagesInDB && (c.DB == nil || c.Stages.Subscriber == nil || c.Stages.Store != nil) {
		return errors.New("Config.StagesInDB needs Config.DB and Config.Stages.Subscriber, and no Config.Stages.Store")
	}
	if c.Receiver.Lease > 0 && c.CrashLimit.Delivered != nil {
		return errors.New("Config.Receiver.Lease and Config.CrashLimit.Delivered are both set: a message whose key is " +
			"leased is given back, which a broker counts as a delivery; set Config.CrashStore instead of Delivered")
	}
	if c.Purge.Retention != 0 && !keys {
		return fmt.Errorf("Config.Purge.Retention is %s without Config.Idempotency: there are no keys to purge; set "+
			"Config.DB or Config.Idempotency", c.Purge.Retention)
	}
	if r := &c.Retention; len(r.Rules) == 0 && (r.Every != 0 || r.Pause != 0 || r.OnTrimmed != nil) {
		return errors.New("Config.Retention is configured without Rules: no letter would be deleted; set " +
			"Config.Retention.Rules")
	}
	if len(c.Retention.Rules) > 0 && (c.DB == nil || !safecall.IsNil(c.Publisher)) {
		return errors.New("Config.Retention.Rules are set and the channel has no dead-letter store: set Config.DB and no " +
			"Config.Publisher, or use letters.NewRetention")
	}
	return nil
}

// share gives each part what is configured once for all parts.
func (c *Config) share() error {
	outage := new(breaker.Config)
	if c.Breaker != nil {
		*outage = *c.Breaker // the caller may use its own again
		c.Breaker = outage
	}
	c.Logger = logging.Wrap(c.Logger, c.Privacy.Text)
	if logger := c.Logger; c.Classify.OnRulePanic == nil {
		c.Classify.OnRulePanic = func(text string, stack []byte) {
			logging.RulePanicked.Write(logger, fmt.Errorf("%s\n%s", text, stack), nil)
		}
	}
	classifier, err := classify.New(c.Classify)
	if err != nil {
		return err
	}
	common := settings.Shared{
		Service: c.Service, Logger: c.Logger, Classifier: classifier, Privacy: c.Privacy, Tracer: c.Tracer, Naming: c.Naming,
		Seal: c.Seal,
	}
	for _, part := range []*settings.Shared{&c.Queue.Shared, &c.CrashLimit.Shared, &c.Stages.Shared, &c.Retry.Shared,
		&outage.Shared, &c.Receiver.Shared, &c.Purge.Shared, &c.Retention.Shared, &c.Outputs.Shared} {
		*part = part.Or(common)
	}
	if c.CrashLimit.Coordinates == nil && c.Queue.Origin != nil {
		c.CrashLimit.Coordinates = coordinates(c.Queue.Origin)
	}
	return nil
}

// coordinates distinguishes messages without an id by where the adapter read them.
func coordinates(origin func(*message.Message) poison.Origin) func(*message.Message) string {
	return func(msg *message.Message) string {
		at := origin(msg)
		if at.Offset == "" {
			return ""
		}
		return at.Topic + "/" + at.Partition + "/" + at.Offset
	}
}
