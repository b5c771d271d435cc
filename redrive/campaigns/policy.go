package campaigns

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
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
	// Canary is the number of letters that are redriven first, at most Max. Required.
	Canary int
	// StopAt is the share of letters that fail again above which the campaign pauses, and the cause is blocked.
	// Default: DefaultStopAt, 0.2. It must be less than 1.
	StopAt float64
	// Quiet are hours in which nothing is redriven, by the clock in Zone, such as 22:00-06:00. Default: none.
	Quiet string
	// Zone is the time zone of Quiet. Default: time.UTC.
	Zone *time.Location

	quiet quietHours
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
			p.quiet, err = parseQuiet(p.Quiet, p.Zone)
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
	case p.Canary < 1 || p.Canary > p.Max:
		return fmt.Errorf(".Canary is %d: a policy needs a canary, such as 10, and at most Max, which is %d", p.Canary, p.Max)
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

const (
	// policyPolls is how many polls of a worker are between two looks at a policy.
	policyPolls = 10
	// causePolls is the same for a cause of which nothing could be started.
	causePolls = 60
)

// policies starts the campaigns of the policies whose time has come. What it cannot start now it looks at again.
func (r *rounds) policies(ctx context.Context) (err error) {
	for i := range r.all.config.Policies {
		p := &r.all.config.Policies[i]
		if ctx.Err() == nil && r.dueNow(p.Name, policyPolls) {
			err = errors.Join(err, r.standing(ctx, p))
		}
	}
	return err
}

// dueNow reports whether it is time for a look, and notes the next one.
func (r *rounds) dueNow(what string, polls int) bool {
	now := time.Now()
	if now.Before(r.policyAt[what]) {
		return false
	}
	r.policyAt[what] = now.Add(time.Duration(polls) * r.worker.config.Poll)
	return true
}

// standing looks at one policy: a campaign for each cause that has letters which no redrive brought back.
func (r *rounds) standing(ctx context.Context, p *Policy) error {
	c := r.all
	if err := c.seen(ctx, p.Name); err != nil {
		return err
	}
	for skip := 0; ; skip += letters.MaxListed { // behind the largest there may be causes of another topic
		causes, err := hidden.Of(c.store).CausesBySize(ctx, p.Filter, skip, letters.MaxListed)
		for _, cause := range causes {
			if err != nil || ctx.Err() != nil {
				return err
			}
			var over bool
			if over, err = r.standingFor(ctx, p, cause); over {
				return err
			}
		}
		if err != nil || len(causes) < letters.MaxListed {
			return err
		}
	}
}

// standingFor looks at one cause. It reports whether the policy can start nothing more now.
func (r *rounds) standingFor(ctx context.Context, p *Policy, cause string) (over bool, err error) {
	if !r.dueNow(p.Name+" "+cause, causePolls) {
		return false, nil
	}
	c, request := r.all, p.request(cause)
	if fresh, err := c.fresh(ctx, &request); err != nil || !fresh {
		return false, err
	}
	id, last, over, err := c.decide(ctx, p, cause, &request)
	if err != nil || over || id == "" {
		return over, err
	}
	eventPolicyStarted.Write(c.config.Logger, nil, logging.Fields{logging.Policy: p.Name, logging.Campaign: id,
		logging.CauseHash: cause})
	return false, c.selectLetters(ctx, id, &request, 0, last)
}

// fresh reports whether a campaign of a policy would have a letter.
func (c *Campaigns) fresh(ctx context.Context, r *Request) (is bool, err error) {
	last, err := hidden.Of(c.store).LastSeq(ctx)
	if err != nil {
		return false, err
	}
	err = c.heads().pages(ctx, r, 0, last, func(found []letters.Head, _ int64) (bool, error) {
		back, err := c.cameBack(ctx, nil, r, found)
		if err != nil {
			return false, err
		}
		var seqs []int64
		for _, l := range found {
			if _, why := c.takes(r, l.Status, l.Topic); why == "" && !back[l.Seq] {
				seqs = append(seqs, l.Seq)
			}
		}
		held, err := c.holding(ctx, seqs)
		is = len(seqs) > len(held)
		return !is, err
	})
	return is, err
}

const (
	// perDay is the time in which a policy starts at most Policy.PerDay campaigns.
	perDay = 24 * time.Hour
	// remembered is for how long a redrive whose letters failed again blocks their cause.
	remembered = 30 * 24 * time.Hour
)

// decide starts a campaign of a policy for a cause, or does not. All workers of the service decide one after the other,
// and the decision is the row of the campaign: a worker that is killed has decided, and another one selects the
// letters, or it has not. over says that the policy starts nothing at all now.
func (c *Campaigns) decide(ctx context.Context, p *Policy, cause string,
	r *Request) (id string, last int64, over bool, err error) {
	of, err := c.stops(ctx, p.Name, cause)
	if err != nil || of.frozen || of.blocked {
		return "", 0, of.frozen, err
	}
	since := time.UnixMicro(max(of.releasedAt, of.now-remembered.Microseconds()))
	redriven, err := hidden.Of(c.store).Redriven(ctx, cause, since)
	if err != nil {
		return "", 0, false, err
	}
	for by, outcome := range redriven {
		if tooMany(outcome, p.StopAt) {
			return "", 0, false, c.block(ctx, p.Name, cause, of.releasedAt, failedAgain(by, outcome))
		}
	}
	request, err := r.encoded()
	if err == nil {
		last, err = hidden.Of(c.store).LastSeq(ctx)
	}
	if err != nil {
		return "", 0, false, err
	}
	why := ""
	err = c.write(ctx, func(tx *sql.Tx) error {
		id, over, why = "", false, ""
		now, err := c.lockStops(ctx, tx, p.Name, cause)
		if err != nil {
			return err
		}
		if over = now.frozen || !p.quiet.until(time.UnixMicro(now.now)).IsZero(); over || now.blocked ||
			now.releasedAt != of.releasedAt {
			return nil
		}
		var may bool
		if may, over, why, err = c.room(ctx, tx, p, cause, now); err != nil || !may {
			return err
		}
		id = watermill.NewUUID()
		return c.begin(ctx, tx, id, r, request, cause, last)
	})
	if err == nil && why != "" {
		err = c.block(ctx, p.Name, cause, of.releasedAt, why)
	}
	if err != nil {
		return "", 0, false, fmt.Errorf("campaigns: decide for the policy %q: %w", p.Name, err)
	}
	return id, last, over, nil
}

// room reports whether the campaigns that a policy started leave room for another one, or why the cause is to be
// blocked. It is called while the others wait.
func (c *Campaigns) room(ctx context.Context, tx *sql.Tx, p *Policy, cause string,
	now stops) (may, over bool, why string, err error) {
	today := 0
	err = c.within(ctx, tx, func(rows *sql.Rows) error { return rows.Scan(&today) },
		`SELECT COUNT(*) FROM spillway_campaigns WHERE service = ? AND policy = ? AND created_at > ?`, c.service(),
		c.db.Text(p.Name),
		now.now-perDay.Microseconds())
	if err != nil || today >= p.PerDay {
		return false, true, "", err
	}
	may = true
	err = c.within(ctx, tx, func(rows *sql.Rows) error {
		var l latest
		err := rows.Scan(&l.id, &l.state, &l.created, &l.ended, &l.selected, &l.redriven, &l.heard)
		may, why = l.leaves(now, p.Window)
		return err
	}, `SELECT id, state, created_at, ended_at, selected, redriven, succeeded + failed_again FROM spillway_campaigns
WHERE service = ? AND policy = ? AND cause = ? ORDER BY created_at DESC, id LIMIT 1`, c.service(), c.db.Text(p.Name), c.db.Text(cause))
	return may, false, why, err
}

// latest is the latest campaign of a policy for a cause.
type latest struct {
	id, state                 string
	created, ended            int64
	selected, redriven, heard int
}

// leaves reports whether it leaves room for another one, or why the cause is to be blocked.
func (l *latest) leaves(now stops, window time.Duration) (may bool, why string) {
	switch {
	case !State(l.state).Ended() || l.created > now.now-window.Microseconds():
		return false, ""
	case l.created <= now.releasedAt:
		return true, ""
	case State(l.state) == Cancelled && l.selected > 0:
		return false, "the campaign " + l.id + " was cancelled"
	case l.redriven > l.heard && l.ended < now.now-listenFor.Microseconds():
		return false, fmt.Sprintf("of the campaign %s, %d of %d letters were not heard of", l.id, l.redriven-l.heard,
			l.redriven)
	}
	return l.redriven <= l.heard, ""
}

// tooMany reports whether too many letters of a redrive failed again.
func tooMany(o inside.Outcome, stopAt float64) bool {
	return float64(o.FailedAgain) > stopAt*float64(o.Redriven+o.Succeeded+o.FailedAgain)
}

func failedAgain(by string, o inside.Outcome) string {
	return fmt.Sprintf("of the redrive %s, %d of %d letters failed again", logged(by), o.FailedAgain,
		o.Redriven+o.Succeeded+o.FailedAgain)
}
