package command

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// purgeReport is what purge did.
type purgeReport struct {
	Chosen int  `json:"chosen"`
	Purged int  `json:"purged"`
	Left   int  `json:"left"`
	DryRun bool `json:"dry_run,omitempty"`
}

func (a *app) purge() *cobra.Command {
	var chosen choice
	var olderThan, reason string
	var yes, dryRun bool
	var rules []string
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Delete letters that are done with",
		Long: `purge deletes letters with their metadata and payloads, for good, in small transactions beside other traffic. The record of what was
done with them stays. --status says which: redriven, succeeded, failed_again and discarded letters are done with. Letters that
wait are deleted only if --status waiting asks for it.

With --rule, purge does once what a Retention of the service does again and again. A rule has words such as status=succeeded, class=permanent,
reason=declined, cause=<hash> and older-than=30d, or keep. A word of several values is there several times. The first rule that a
letter matches decides.

--dry-run says how many letters would be deleted, by rule if there are rules.`,
		Example: `  redrive purge --status succeeded --status discarded --older-than 30d --reason "retention"
  redrive purge --rule "reason=suspected_fraud keep" --rule "status=succeeded status=discarded older-than=30d" --dry-run
  redrive purge --status discarded --cause 9f3a12bc --older-than 0s --reason "personal data" --yes`,
		Args: arguments(0, 0, "none: flags choose the letters"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if len(rules) > 0 {
				return a.retain(ctx, rules, reason, dryRun, yes, &chosen)
			}
			switch {
			case reason == "" && !dryRun:
				return errNoReason
			case !chosen.has("status"):
				return wrong("--status is empty: name the letters to delete, such as succeeded")
			case olderThan == "":
				return wrong("--older-than is empty: give an age such as 30d; 0s is every age")
			}
			if chosen.has("until") {
				return wrong("--until and --older-than are both given: give one")
			}
			if _, err := moment("older-than", olderThan); err != nil {
				return err
			}
			store, err := a.store(ctx)
			if err != nil {
				return err
			}
			d := a.here(store, nil)
			if err := chosen.notMeant(ctx, d, reason); err != nil {
				return err
			}
			chosen.until = olderThan
			s, err := a.freeze(ctx, d, &chosen)
			if err != nil {
				return err
			}
			if dryRun {
				if a.json {
					return a.screen.JSON(purgeReport{Chosen: s.Number, DryRun: true})
				}
				a.screen.Line("would delete %s", several(s.Number, "letter"))
				return nil
			}
			if !yes {
				if err := a.screen.Confirm("delete %s of %s for good?", several(s.Number, "letter"),
					a.owner()); err != nil {
					return err
				}
			}
			report := purgeReport{Chosen: s.Number}
			report.Purged, err = store.Purge(ctx, s.Filter, letters.Act{By: a.settings.by, Reason: reason})
			report.Left = max(0, s.Number-report.Purged)
			if a.json {
				return errors.Join(err, a.screen.JSON(report))
			}
			a.screen.Line("deleted %s", several(report.Purged, "letter"))
			return err
		},
	}
	cmd.Flags().StringVar(&olderThan, "older-than", "",
		"failed at least so long ago: 30d, 12h; 0s is every age (required)")
	cmd.Flags().StringArrayVar(&rules, "rule", nil,
		"which letters, from which age; several rules are tried in their order")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say how many letters would be deleted, with --rule by rule, and "+
		"delete nothing")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record (required)")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	chosen.flags(cmd, a.process.In, true)
	return cmd
}

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
	retention, err := hidden.Of(store).Retention(rules, letters.Act{By: a.settings.by, Reason: reason})
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
