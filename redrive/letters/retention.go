package letters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/lifecycle"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/internal/wait"
	"github.com/watermill-spillway/spillway/settings"
)

// RetentionRule says which letters are deleted, and when. A letter matches a rule if it has any one of the values of
// each list that is set, whatever its age.
type RetentionRule struct {
	// Statuses are the states of the letters. Required, unless Keep is set. A letter that waits is the last copy of its
	// message: name StatusWaiting only if such a message may be lost.
	Statuses []Status
	// Classes are classes of the latest failure. Default: all classes.
	Classes []classify.Class
	// Reasons are reasons of the latest failure. Default: all reasons.
	Reasons []string
	// Causes are hashes of causes, as Group.Cause has them. Default: all causes.
	Causes []string
	// OlderThan is the time since the latest failure, after which a letter is deleted. Required, unless Keep is set.
	OlderThan time.Duration
	// Keep keeps the letters for good, whatever later rules say. Default: false.
	Keep bool
}

// RetentionConfig configures a Retention.
type RetentionConfig struct {
	// Rules say which letters are deleted. The first rule that a letter matches decides. A letter that matches no rule
	// stays. Required.
	Rules []RetentionRule
	// Act is on record for each letter that is deleted. Default: the name of the process, and the age of the rule as the reason.
	Act Act
	// OnTrimmed is called after each look at the letters, also if the look deleted none or failed. Default: none.
	OnTrimmed func(ctx context.Context, t Trimmed)
	// Shared: Logger receives a line with the number of letters for each rule that deleted some. The events say which letters
	// these were.
	settings.Shared
}

// Trimmed is one look of a Retention at the letters.
type Trimmed struct {
	// Letters is the number of letters that the look deleted, and Rules that number by rule, in the order of
	// RetentionConfig.Rules.
	Letters int
	Rules   []int
	// Took is how long the look took.
	Took time.Duration
	// Err is the error that ended the look early, or nil.
	Err error
}

const (
	// maxRules bounds RetentionConfig.Rules.
	maxRules = 100
	// maxRuleValues bounds the values that all rules list: a statement binds those of a rule and of all rules before it.
	maxRuleValues = 5000
)

func (c *RetentionConfig) setDefaults() {
	c.Logger = logging.Wrap(c.Logger, nil)
	c.Rules = slices.Clone(c.Rules)
}

func (c *RetentionConfig) validate() error {
	switch {
	case len(c.Rules) == 0:
		return errors.New("letters: RetentionConfig.Rules is empty: name the states of letters, and an age")
	case len(c.Rules) > maxRules:
		return fmt.Errorf("letters: RetentionConfig.Rules has %d rules: at most %d are possible: one rule can name several causes", len(c.Rules), maxRules)
	}
	if err := c.Act.validate(); err != nil {
		return fmt.Errorf("letters: RetentionConfig.Act: %w", err)
	}
	values := 0
	for i, rule := range c.Rules {
		if err := rule.validate(); err != nil {
			return fmt.Errorf("letters: RetentionConfig.Rules[%d]%w", i, err)
		}
		values += len(rule.Statuses) + len(rule.Classes) + len(rule.Reasons) + len(rule.Causes)
	}
	if values > maxRuleValues {
		return fmt.Errorf("letters: RetentionConfig.Rules list %d values in all: at most %d are possible: use several Retentions", values, maxRuleValues)
	}
	return nil
}

func (r *RetentionRule) validate() error {
	f := r.filter()
	switch err := f.Validate(); {
	case err != nil:
		return fmt.Errorf(": %w", err)
	case r.Keep && r.OlderThan != 0:
		return fmt.Errorf(".OlderThan is %s and Keep is set: set one", r.OlderThan)
	case r.Keep:
		return nil
	case len(r.Statuses) == 0:
		return errors.New(".Statuses is empty: name the states of the letters to delete, such as StatusSucceeded")
	case r.OlderThan <= 0:
		return fmt.Errorf(".OlderThan is %s: it must be positive", r.OlderThan)
	}
	return nil
}

// filter chooses the letters that match the rule.
func (r *RetentionRule) filter() Filter {
	f := Filter{Statuses: r.Statuses, Classes: r.Classes, Reasons: r.Reasons, Causes: r.Causes}
	if len(f.Statuses) == 0 {
		f.Statuses = Statuses()
	}
	return f
}

// due chooses the letters that a rule deletes now: they are old enough, and no rule before it decides about them.
func (c *RetentionConfig) due(i int, now time.Time) Filter {
	f := c.Rules[i].filter()
	f.Until = now.Add(-c.Rules[i].OlderThan)
	for _, before := range c.Rules[:i] {
		f.unless = append(f.unless, before.filter())
	}
	return f
}

// Due returns how many letters each rule would delete now, in the order of RetentionConfig.Rules: a dry run. Letters
// that have a lease are among them.
func (r *Retention) Due(ctx context.Context) (rules []int, err error) {
	if r == nil {
		return nil, errNilRetention
	}
	rules, now := make([]int, len(r.config.Rules)), time.Now()
	for i, rule := range r.config.Rules {
		if rule.Keep {
			continue
		}
		if rules[i], err = r.store.Count(ctx, r.config.due(i, now)); err != nil {
			return nil, err
		}
	}
	return rules, nil
}

// Retention deletes old letters by itself, as Purge does: in small transactions, with an event for each letter. Nothing
// is deleted without a Retention or a call of Purge. Instances of a service that run one each do no harm: a letter is
// deleted, and recorded, once. Letters that have a lease stay until the next look. It is safe for concurrent use.
type Retention struct {
	store  *Store
	config RetentionConfig
	every  time.Duration
	life   *lifecycle.Lifecycle
}

// NewRetention returns a Retention of the letters of the store's service. Nothing is deleted before Run, or Trim, or
// before the router of Plugin runs.
func NewRetention(store *Store, config RetentionConfig) (*Retention, error) {
	if store == nil {
		return nil, errNilStore
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	r := &Retention{store: store, config: config, every: every}
	r.life = lifecycle.Run(func(ctx context.Context) { _ = r.Run(ctx) })
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

const (
	// every is the time from the end of one look at the letters to the next.
	every = time.Hour
	// afterError is the wait after a look that failed.
	afterError = time.Minute
)

// Run looks at the letters at once, and then every hour, until ctx ends. It returns nil then. An error of
// the database is logged, and does not end Run.
func (r *Retention) Run(ctx context.Context) error {
	switch {
	case r == nil:
		return errNilRetention
	case ctx == nil:
		return errNilContext
	}
	for ctx.Err() == nil {
		next := r.every
		if _, err := r.Trim(ctx); err != nil && ctx.Err() == nil {
			logging.RetentionFailed.Write(r.config.Logger, err, nil)
			next = min(next, afterError)
		}
		wait.For(ctx, next)
	}
	return nil
}

// Trim deletes the letters that are past their retention now, and returns how many it deleted, also with an error.
func (r *Retention) Trim(ctx context.Context) (n int, err error) {
	switch {
	case r == nil:
		return 0, errNilRetention
	case ctx == nil:
		return 0, errNilContext
	}
	t := Trimmed{Rules: make([]int, len(r.config.Rules))}
	began := time.Now()
	for i := range r.config.Rules {
		t.Rules[i], t.Err = r.apply(ctx, i)
		t.Letters += t.Rules[i]
		if t.Err != nil {
			break
		}
	}
	t.Took = time.Since(began)
	if r.config.OnTrimmed != nil && ctx.Err() == nil {
		safecall.Hook(r.config.Logger, "RetentionConfig.OnTrimmed", func() { r.config.OnTrimmed(ctx, t) })
	}
	return t.Letters, t.Err
}

// apply deletes what one rule says.
func (r *Retention) apply(ctx context.Context, i int) (n int, err error) {
	rule := &r.config.Rules[i]
	if rule.Keep {
		return 0, nil
	}
	act := r.config.Act
	if act.By == "" {
		act.By = r.store.node
	}
	if act.Reason == "" {
		act.Reason = "retention: " + rule.OlderThan.String() + " since the latest failure"
	}
	n, err = r.store.purge(ctx, r.config.due(i, time.Now()), act, rest)
	if n > 0 {
		logging.LettersDeleted.Write(r.config.Logger, nil, logging.Fields{
			logging.Letters: n, "statuses": rule.Statuses, "classes": rule.Classes, "reasons": rule.Reasons,
			"causes": len(rule.Causes), "older_than": rule.OlderThan.String(), "service": r.store.service,
		})
	}
	return n, wrapped(fmt.Sprintf("retention, rule %d, after %d", i, n), err)
}

// rest leaves the database to others after a transaction of at most 200 letters: for as long as it took, so that live
// traffic has half of the time.
func rest(ctx context.Context, took time.Duration) { wait.For(ctx, took) }
