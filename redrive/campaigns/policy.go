package campaigns

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/redrive/internal/quiet"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	minWindow     = time.Minute
	maxWindow     = 7 * 24 * time.Hour
	maxPerDay     = 1000
	maxPolicyName = 64
	maxPolicies   = 100
)

// Policy is a standing rule: workers redrive the letters that it chooses without a person, by campaigns in the name
// "policy NAME". A campaign has letters of one cause. Letters that came back from any redrive are never taken. A cause
// of which more than StopAt failed again, in a redrive of the policy or of a person, is blocked until a person releases
// it. The campaigns of a policy stop for good at their canary, until all of it is heard of.
type Policy struct {
	// Name names the policy on record, in at most 64 small letters, digits and hyphens. Required.
	Name string
	// Filter chooses the letters, by Causes, Classes or Reasons, one of which is required, and by Handlers, Topics,
	// DeadLetterTopics and Types. No two policies may choose the same letters.
	Filter letters.Filter
	// Window is the shortest time between two campaigns of a cause, 1 min to 7 days. Letters that wait must be kept for
	// longer. Required.
	Window time.Duration
	// PerDay is the largest number of campaigns in any 24 hours, of all causes and instances. Required.
	PerDay int
	// Max is the largest number of letters of a campaign. Required.
	Max int
	// Rate is the number of letters per second. Required.
	Rate float64
	// Canary is the number of letters that are redriven first. Required.
	Canary int
	// StopAt is the share of letters that fail again above which the campaign pauses, and the cause is blocked.
	// Default: DefaultStopAt, 0.2. It must be less than 1.
	StopAt float64
	// Quiet are hours in which nothing is redriven, by the clock in Zone, such as 22:00-06:00. Default: none.
	Quiet string
	// Zone is the time zone of Quiet. Default: time.UTC.
	Zone *time.Location

	quiet quiet.Hours
}

// prepared returns the policies with their defaults, or an error that names a field.
func prepared(policies []Policy, retention time.Duration) ([]Policy, error) {
	if len(policies) > maxPolicies {
		return nil, fmt.Errorf("campaigns: Config.Policies has %d policies: at most %d are possible", len(policies),
			maxPolicies)
	}
	policies = slices.Clone(policies)
	for i := range policies {
		p := &policies[i]
		p.StopAt, p.Zone = cmp.Or(p.StopAt, DefaultStopAt), cmp.Or(p.Zone, time.UTC)
		err := p.validate(retention)
		if err == nil {
			p.quiet, err = quiet.Parse(p.Quiet, p.Zone)
			if err != nil {
				err = fmt.Errorf(".Quiet %w", err)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("campaigns: Config.Policies[%d]%w", i, err)
		}
		for j := range policies[:i] {
			switch other := &policies[j]; {
			case other.Name == p.Name:
				return nil, fmt.Errorf("campaigns: Config.Policies[%d].Name is %q, as that of Policies[%d]: rename one", i, p.Name,
					j)
			case !disjoint(&p.Filter, &other.Filter):
				return nil, fmt.Errorf("campaigns: Config.Policies[%d].Filter and that of Policies[%d] can choose the same letters: "+
					"give both a list of Causes, Classes, Reasons, Handlers, Topics or Types with no value in common", i, j)
			}
		}
	}
	return policies, nil
}

// validate returns an error that begins with a dot and the field.
func (p *Policy) validate(retention time.Duration) error {
	f := &p.Filter
	chosen := letters.Filter{Causes: f.Causes, Classes: f.Classes, Reasons: f.Reasons, Handlers: f.Handlers,
		Topics: f.Topics, DeadLetterTopics: f.DeadLetterTopics, Types: f.Types}
	unknown := slices.IndexFunc(f.Classes, func(c classify.Class) bool { return c > classify.ClassInvalid })
	switch {
	case !isPolicyName(p.Name):
		return fmt.Errorf(".Name is %q: it must have 1 to %d small letters, digits and hyphens", logged(p.Name),
			maxPolicyName)
	case len(f.Causes)+len(f.Classes)+len(f.Reasons) == 0:
		return errors.New(".Filter has no Causes, Classes or Reasons: say what failed; a policy for all letters is none")
	case !reflect.DeepEqual(chosen, *f):
		return errors.New(".Filter has fields beside Causes, Classes, Reasons, Handlers, Topics, DeadLetterTopics and Types: " +
			"leave them out")
	case unknown >= 0:
		return fmt.Errorf(".Filter.Classes has %d, which no letter has: use classify.ClassTransient, ClassUnknown, "+
			"ClassPermanent or ClassInvalid", f.Classes[unknown])
	case p.Window < minWindow || p.Window > maxWindow:
		return fmt.Errorf(".Window is %s: it must be %s to %s", p.Window, minWindow, maxWindow)
	case retention > 0 && p.Window >= retention:
		return fmt.Errorf(".Window is %s, and a RetentionRule deletes letters that wait after %s: make it shorter", p.Window,
			retention)
	case p.PerDay < 1 || p.PerDay > maxPerDay:
		return fmt.Errorf(".PerDay is %d: bound the campaigns of a day, 1 to %d", p.PerDay, maxPerDay)
	case p.Max < 1:
		return fmt.Errorf(".Max is %d: bound the letters of a campaign", p.Max)
	case !(p.Rate >= minRate && p.Rate <= MaxRate):
		return fmt.Errorf(".Rate is %v: a policy needs a rate, %v to %v letters per second", p.Rate, minRate, MaxRate)
	case p.Canary < 1:
		return fmt.Errorf(".Canary is %d: a policy needs a canary, such as 10", p.Canary)
	case !(p.StopAt > 0 && p.StopAt < 1):
		return fmt.Errorf(".StopAt is %v: it is a share above 0 and below 1", p.StopAt)
	}
	if err := f.Validate(); err != nil {
		return fmt.Errorf(".Filter: %w", err)
	}
	return nil
}

func isPolicyName(name string) bool {
	return name != "" && len(name) <= maxPolicyName && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	})
}

// disjoint reports whether no letter can be chosen by both filters.
func disjoint(a, b *letters.Filter) bool {
	return apart(a.Causes, b.Causes) || apart(a.Classes, b.Classes) || apart(a.Reasons, b.Reasons) ||
		apart(a.Handlers, b.Handlers) || apart(a.Topics, b.Topics) || apart(a.Types, b.Types) ||
		apart(a.DeadLetterTopics, b.DeadLetterTopics)
}

func apart[T comparable](a, b []T) bool {
	return len(a) > 0 && len(b) > 0 && !slices.ContainsFunc(a, func(v T) bool { return slices.Contains(b, v) })
}

// rule is the policy in words, for the record and for lists.
func (p *Policy) rule() string {
	var of []string
	add := func(what string, values []string) {
		if len(values) > 0 {
			of = append(of, what+" "+logged(strings.Join(values, ", ")))
		}
	}
	var classes []string
	for _, c := range p.Filter.Classes {
		classes = append(classes, c.String())
	}
	f := &p.Filter
	add("class", classes)
	add("reason", f.Reasons)
	add("cause", f.Causes)
	add("handler", f.Handlers)
	add("topic", f.Topics)
	add("dead-letter topic", f.DeadLetterTopics)
	add("type", f.Types)
	text := fmt.Sprintf("%s: at most %d letters of a cause each %s, %d times a day, %v a second, a canary of %d, stop at %v%%",
		strings.Join(of, "; "), p.Max, strings.TrimSuffix(strings.TrimSuffix(p.Window.String(), "0s"), "0m"), p.PerDay,
		p.Rate,
		p.Canary, 100*p.StopAt)
	if p.Quiet != "" {
		text += fmt.Sprintf("; quiet %s %s", p.Quiet, p.Zone)
	}
	return text
}

// request is a campaign of the policy for the letters of a cause.
func (p *Policy) request(cause string) Request {
	r := Request{Filter: p.Filter, Max: p.Max, Rate: p.Rate, Canary: p.Canary, StopAt: p.StopAt, StopAfter: p.Canary,
		ResumeAfter: time.Minute, Act: Act{By: "policy " + p.Name, Reason: "standing policy: " + p.rule()}, policy: p.Name}
	r.Filter.Causes = []string{cause}
	r.setDefaults()
	return r
}
