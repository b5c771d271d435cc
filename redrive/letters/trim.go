package letters

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

func (in *inner) Retention(rules []RetentionRule, act Act) (inside.Retention, error) {
	if in == nil {
		return nil, errNilStore
	}
	if err := checkRules(rules); err != nil {
		return nil, err
	}
	if err := act.validate(); err != nil {
		return nil, fmt.Errorf("letters: retention: %w", err)
	}
	return &trimming{store: (*Store)(in), rules: slices.Clone(rules), act: act, logger: logging.Wrap(nil, nil)}, nil
}

// trimming deletes letters by rules. The first rule that a letter matches decides.
type trimming struct {
	store  *Store
	rules  []RetentionRule
	act    Act // what is empty is filled in for each rule
	logger watermill.LoggerAdapter
}

// due chooses the letters that a rule deletes now: they are old enough, and no rule before it decides about them.
func (t *trimming) due(i int, now time.Time) Filter {
	f := t.rules[i].filter()
	f.Until = now.Add(-t.rules[i].OlderThan)
	for _, before := range t.rules[:i] {
		f.unless = append(f.unless, before.filter())
	}
	return f
}

func (t *trimming) Due(ctx context.Context) (rules []int, err error) {
	rules, now := make([]int, len(t.rules)), time.Now()
	for i, rule := range t.rules {
		if rule.Keep {
			continue
		}
		if rules[i], err = t.store.Count(ctx, t.due(i, now)); err != nil {
			return nil, err
		}
	}
	return rules, nil
}

func (t *trimming) Trim(ctx context.Context) (rules []int, err error) {
	rules = make([]int, len(t.rules))
	for i := range rules {
		if rules[i], err = t.apply(ctx, i); err != nil {
			break
		}
	}
	return rules, err
}

// apply deletes what one rule says.
func (t *trimming) apply(ctx context.Context, i int) (n int, err error) {
	rule, act := &t.rules[i], t.act
	if rule.Keep {
		return 0, nil
	}
	if act.By == "" {
		act.By = t.store.node
	}
	if act.Reason == "" {
		act.Reason = "retention: " + rule.OlderThan.String() + " since the latest failure"
	}
	n, err = t.store.purge(ctx, t.due(i, time.Now()), act, rest)
	if n > 0 {
		logging.LettersDeleted.Write(t.logger, nil, logging.Fields{
			logging.Letters: n, "statuses": rule.Statuses, "classes": rule.Classes, "reasons": rule.Reasons,
			"causes": len(rule.Causes), "older_than": rule.OlderThan.String(), "service": t.store.service,
		})
	}
	return n, wrapped(fmt.Sprintf("retention, rule %d, after %d", i, n), err)
}

// rest leaves the database to others after a transaction of at most 200 letters: for as long as it took, so that live
// traffic has half of the time.
func rest(ctx context.Context, took time.Duration) { wait.For(ctx, took) }
