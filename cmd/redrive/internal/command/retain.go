package command

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// retained is what one rule did, or would do.
type retained struct {
	Rule   string `json:"rule"`
	Purged int    `json:"purged"`
	DryRun bool   `json:"dry_run,omitempty"`
}

// retain is purge with rules.
func (a *app) retain(ctx context.Context, texts []string, reason string, dryRun, yes bool, chosen *choice) error {
	switch {
	case !chosen.empty():
		return wrong("--rule and flags that choose letters are both given: write status=, class=, reason= and cause= into the rules")
	case reason == "" && !dryRun:
		return errNoReason
	}
	store, err := a.store(ctx)
	if err != nil {
		return err
	}
	var rules []letters.RetentionRule
	for _, text := range texts {
		rule, err := ruleOf(ctx, a.here(store, nil), text)
		if err != nil {
			return err
		}
		rules = append(rules, rule)
	}
	retention, err := store.Inside().Retention(rules, letters.Act{By: a.settings.by, Reason: reason})
	if err != nil {
		return coded{err, exitWrong}
	}
	due, err := retention.Due(ctx)
	if err != nil {
		return err
	}
	all := 0
	for _, n := range due {
		all += n
	}
	if dryRun {
		return a.retained(texts, due, true)
	}
	if all == 0 {
		return none("no letter is past the age of its rule")
	}
	if !yes {
		if err := a.screen.Confirm("delete %s of %s for good?", several(all, "letter"), a.owner()); err != nil {
			return err
		}
	}
	done, err := retention.Trim(ctx)
	return errors.Join(err, a.retained(texts, done, false))
}

func (a *app) retained(rules []string, numbers []int, dryRun bool) error {
	for i, rule := range rules {
		if a.json {
			if err := a.screen.JSON(retained{rule, numbers[i], dryRun}); err != nil {
				return err
			}
			continue
		}
		did := map[bool]string{true: "would delete", false: "deleted"}[dryRun]
		a.screen.Line("%s %s: %s", did, several(numbers[i], "letter"), rule)
	}
	return nil
}

// ruleOf reads a rule of words.
func ruleOf(ctx context.Context, d *desk, text string) (rule letters.RetentionRule, err error) {
	words := strings.Fields(text)
	switch {
	case len(words) == 0:
		return rule, wrong("--rule is empty: write status=succeeded older-than=30d")
	case strings.ContainsAny(strings.TrimSpace(text), "\r\n"):
		return rule, wrong("--rule is %q: a rule is one line; give --rule once for each", text)
	}
	var causes []string
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		switch {
		case word == "keep":
			rule.Keep = true
			continue
		case value == "":
			return rule, wrong("--rule has %q: want a word such as status=succeeded, or keep", word)
		}
		switch name {
		case "status":
			rule.Statuses = append(rule.Statuses, letters.Status(value))
		case "class":
			c, err := operate.ParseClass("class", value)
			if err != nil {
				return rule, wrong("--rule has class=%s: %w", value, err)
			}
			rule.Classes = append(rule.Classes, c)
		case "reason":
			rule.Reasons = append(rule.Reasons, value)
		case "cause":
			causes = append(causes, value)
		case "older-than":
			if rule.OlderThan != 0 {
				return rule, wrong("--rule has older-than= twice: give one")
			}
			if rule.OlderThan, err = age(value); err != nil {
				return rule, err
			}
		default:
			return rule, wrong("--rule has %q: the words are status=, class=, reason=, cause=, older-than= and keep",
				word)
		}
	}
	rule.Causes, err = wholeCauses(ctx, d, causes)
	return rule, err
}

// everyAge stands for 0s: a rule without an age is refused.
const everyAge = time.Nanosecond

// age reads 12h or 30d, and 0s as every age.
func age(text string) (time.Duration, error) {
	if ago, ok := operate.Age(text); ok {
		return max(ago, everyAge), nil
	}
	return 0, wrong("--rule has older-than=%s: give an age such as 12h or 30d; 0s is every age", text)
}
