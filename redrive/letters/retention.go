package letters

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/lifecycle"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/internal/wait"
)

// RetentionRule says which letters are deleted, and when.
type RetentionRule struct {
	// Statuses are the states of the letters. Required. A letter that waits is the last copy of its message: name StatusWaiting
	// only if such a message may be lost.
	Statuses []Status
	// OlderThan is the time since the latest failure, after which a letter is deleted. Required.
	OlderThan time.Duration
	// Causes are hashes of causes, as Group.Cause has them. Default: all causes.
	Causes []string
}

// RetentionConfig configures a Retention.
type RetentionConfig struct {
	// Rules say which letters are deleted: those that any of the rules chooses. Required.
	Rules []RetentionRule
	// Every is the time from the end of one look at the letters to the next. Default: 1 hour. At least 1 second.
	Every time.Duration
	// Logger receives a line with the number of letters for each rule that deleted some. Default: no lines. The events say which
	// letters these were.
	Logger watermill.LoggerAdapter
}

// maxRules bounds RetentionConfig.Rules.
const maxRules = 100

func (c *RetentionConfig) setDefaults() {
	if c.Every == 0 {
		c.Every = time.Hour
	}
	if safecall.IsNil(c.Logger) {
		c.Logger = watermill.NopLogger{}
	}
}

func (c *RetentionConfig) validate() error {
	switch {
	case len(c.Rules) == 0:
		return errors.New("letters: RetentionConfig.Rules is empty: name the states of letters, and an age")
	case len(c.Rules) > maxRules:
		return fmt.Errorf("letters: RetentionConfig.Rules has %d rules: at most %d are possible: one rule can name several causes", len(c.Rules), maxRules)
	case c.Every < time.Second:
		return fmt.Errorf("letters: RetentionConfig.Every is %s: it must be 1s or more", c.Every)
	}
	for i, rule := range c.Rules {
		if len(rule.Statuses) == 0 {
			return fmt.Errorf("letters: RetentionConfig.Rules[%d].Statuses is empty: name the states of the letters to delete, such as StatusSucceeded", i)
		}
		if rule.OlderThan <= 0 {
			return fmt.Errorf("letters: RetentionConfig.Rules[%d].OlderThan is %s: it must be positive", i, rule.OlderThan)
		}
		f := rule.filter(time.Time{})
		if err := f.Validate(); err != nil {
			return fmt.Errorf("letters: RetentionConfig.Rules[%d]: %w", i, err)
		}
	}
	return nil
}

func (r *RetentionRule) filter(now time.Time) Filter {
	return Filter{Statuses: r.Statuses, Causes: r.Causes, Until: now.Add(-r.OlderThan)}
}

// Retention deletes old letters by itself, as Purge does: in small transactions, with an event for each letter. Nothing is
// deleted without a Retention or a call of Purge. Instances of a service that run one each do no harm: a letter is deleted, and
// recorded, once. Letters that have a lease stay until the next look. It is safe for concurrent use.
type Retention struct {
	store  *Store
	config RetentionConfig
	life   *lifecycle.Lifecycle

	// Those of the plugin's run, under the lock of life.
	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// NewRetention returns a Retention of the letters of the store's service. Nothing is deleted before Run, or Trim, or before the
// router of Plugin runs.
func NewRetention(store *Store, config RetentionConfig) (*Retention, error) {
	if store == nil {
		return nil, errNilStore
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	r := &Retention{store: store, config: config}
	r.life = lifecycle.New(r.start, func() { r.stop(); r.stopped.Wait() })
	return r, nil
}

var errNilRetention = errors.New("letters: the Retention is nil: check the error of NewRetention")

// Plugin runs the Retention for as long as handlers of the router run.
func (r *Retention) Plugin(router *message.Router) error {
	switch {
	case r == nil:
		return errNilRetention
	case router == nil:
		return errors.New("letters: the router of Retention.Plugin is nil: give Retention.Plugin to Router.AddPlugin")
	}
	return r.life.Plugin(router)
}

func (r *Retention) start() error {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.stopped.Go(func() { _ = r.Run(ctx) })
	return nil
}

// afterError is the wait after a look that failed, unless Every is shorter.
const afterError = time.Minute

// Run looks at the letters at once, and then again after each Every, until ctx ends. It returns nil then. An error of the
// database is logged, and does not end Run.
func (r *Retention) Run(ctx context.Context) error {
	switch {
	case r == nil:
		return errNilRetention
	case ctx == nil:
		return errNilContext
	}
	for ctx.Err() == nil {
		next := r.config.Every
		if _, err := r.Trim(ctx); err != nil && ctx.Err() == nil {
			r.config.Logger.Error("Letters past their retention were not all deleted", err, nil)
			next = min(next, afterError)
		}
		wait.For(ctx, next)
	}
	return nil
}

// Trim deletes the letters that are past their retention now, and returns how many it deleted, also with an error.
func (r *Retention) Trim(ctx context.Context) (n int, err error) {
	if r == nil {
		return 0, errNilRetention
	}
	for _, rule := range r.config.Rules {
		deleted, err := r.store.Purge(ctx, rule.filter(time.Now()), Act{
			By: r.store.node, Reason: "retention: " + rule.OlderThan.String() + " since the latest failure",
		})
		n += deleted
		if deleted > 0 {
			r.config.Logger.Info("Deleted letters past their retention", watermill.LogFields{
				"letters": deleted, "statuses": rule.Statuses, "older_than": rule.OlderThan.String(), "causes": len(rule.Causes), "service": r.store.service,
			})
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
