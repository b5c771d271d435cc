package letters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain/lifecycle"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/observe"
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

// RetentionConfig configures NewRetention. The record of a deleted letter has the name of the process, and the age of
// the rule.
type RetentionConfig struct {
	// Rules say which letters are deleted. The first rule that a letter matches decides. A letter that matches no rule
	// stays. Required.
	Rules []RetentionRule
	// OnRun is called after each look at the letters, with the number of letters that it deleted, and the error that
	// ended it early, or nil. Default: none.
	OnRun func(ctx context.Context, letters int, err error)
	// Shared: Logger receives a line with the number of letters for each rule that deleted some. The events say which
	// letters these were.
	observe.Shared
}

const (
	// maxRules bounds RetentionConfig.Rules.
	maxRules = 100
	// maxRuleValues bounds the values that all rules list: a statement binds those of a rule and of all rules before
	// it.
	maxRuleValues = 5000
)

func checkRules(rules []RetentionRule) error {
	switch {
	case len(rules) == 0:
		return errors.New("letters: RetentionConfig.Rules is empty: name the states of letters, and an age")
	case len(rules) > maxRules:
		return fmt.Errorf("letters: RetentionConfig.Rules has %d rules: at most %d are possible: one rule can name several causes", len(rules), maxRules)
	}
	values := 0
	for i, rule := range rules {
		if err := rule.validate(); err != nil {
			return fmt.Errorf("letters: RetentionConfig.Rules[%d]%w", i, err)
		}
		values += len(rule.Statuses) + len(rule.Classes) + len(rule.Reasons) + len(rule.Causes)
	}
	if values > maxRuleValues {
		return fmt.Errorf("letters: RetentionConfig.Rules list %d values in all: at most %d are possible: use several plugins", values, maxRuleValues)
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

// retention is what a plugin of NewRetention runs.
type retention struct {
	store  *Store
	rules  []RetentionRule
	logger watermill.LoggerAdapter
	onRun  func(ctx context.Context, letters int, err error)
	every  time.Duration
	life   *lifecycle.Lifecycle
}

// NewRetention returns a plugin of a router that deletes old letters of the store's service by itself, as Purge does:
// in small transactions, with an event for each letter. It runs for as long as handlers of the router run. Nothing is
// deleted without it or a call of Purge. Instances of a service that run one each do no harm: a letter is deleted, and
// recorded, once. Letters that have a lease stay until the next look.
func NewRetention(store *Store, config RetentionConfig) (message.RouterPlugin, error) {
	r, err := newRetention(store, config)
	if err != nil {
		return nil, err
	}
	return func(router *message.Router) error {
		if router == nil {
			return errors.New("letters: the router of the plugin of NewRetention is nil: give the plugin to Router.AddPlugin")
		}
		return r.life.Plugin(router)
	}, nil
}

func newRetention(store *Store, config RetentionConfig) (*retention, error) {
	if store == nil {
		return nil, errNilStore
	}
	if err := checkRules(config.Rules); err != nil {
		return nil, err
	}
	r := &retention{store: store, rules: slices.Clone(config.Rules), logger: logging.Wrap(config.Logger, nil),
		onRun: config.OnRun, every: every}
	r.life = lifecycle.Run(r.run)
	for _, rule := range config.Rules {
		if known := store.retention.Load(); !rule.Keep && slices.Contains(rule.Statuses, StatusWaiting) &&
			(known == 0 || int64(rule.OlderThan) < known) {
			store.retention.Store(int64(rule.OlderThan))
		}
	}
	return r, nil
}

const (
	// every is the time from the end of one look at the letters to the next.
	every = time.Hour
	// afterError is the wait after a look that failed.
	afterError = time.Minute
)

// run looks at the letters at once, and then every hour, until ctx ends. An error of the database is logged.
func (r *retention) run(ctx context.Context) {
	for ctx.Err() == nil {
		next := r.every
		rules, err := r.Trim(ctx)
		if r.onRun != nil && ctx.Err() == nil {
			safecall.Hook(r.logger, "RetentionConfig.OnRun", func() { r.onRun(ctx, sum(rules), err) })
		}
		if err != nil && ctx.Err() == nil {
			eventRetentionFailed.Write(r.logger, err, nil)
			next = min(next, afterError)
		}
		timing.Wait(ctx, next)
	}
}

func sum(numbers []int) (all int) {
	for _, n := range numbers {
		all += n
	}
	return all
}

// due chooses the letters that a rule deletes now: they are old enough, and no rule before it decides about them.
func (r *retention) due(i int, now time.Time) Filter {
	f := r.rules[i].filter()
	f.Until = now.Add(-r.rules[i].OlderThan)
	for _, before := range r.rules[:i] {
		f.unless = append(f.unless, before.filter())
	}
	return f
}

// Trim deletes the letters that are past their retention now, and returns how many each rule deleted, also with an
// error.
func (r *retention) Trim(ctx context.Context) (rules []int, err error) {
	rules = make([]int, len(r.rules))
	for i := range rules {
		if rules[i], err = r.apply(ctx, i); err != nil {
			break
		}
	}
	return rules, err
}

// apply deletes what one rule says.
func (r *retention) apply(ctx context.Context, i int) (n int, err error) {
	rule := &r.rules[i]
	if rule.Keep {
		return 0, nil
	}
	act := Act{By: r.store.node, Reason: "retention: " + rule.OlderThan.String() + " since the latest failure"}
	n, err = r.store.purge(ctx, r.due(i, time.Now()), act, rest)
	if n > 0 {
		eventLettersDeleted.Write(r.logger, nil, logging.Fields{
			logging.Letters: n, "statuses": rule.Statuses, "classes": rule.Classes, "reasons": rule.Reasons,
			"causes": len(rule.Causes), "older_than": rule.OlderThan.String(), "service": r.store.service,
		})
	}
	return n, wrapped(fmt.Sprintf("retention, rule %d, after %d", i, n), err)
}

// rest leaves the database to others after a transaction of at most 200 letters: for as long as it took, so that live
// traffic has half of the time.
func rest(ctx context.Context, took time.Duration) { timing.Wait(ctx, took) }

// Redrives, letters and campaigns.
var (
	// each: nothing
	eventLettersDeleted = logging.InfoEvent("letters_deleted", "Deleted letters past their retention")
	// each: Repair the database, if it goes on.
	eventRetentionFailed = logging.ErrorEvent("retention_failed", "Letters past their retention were not all deleted")
)
