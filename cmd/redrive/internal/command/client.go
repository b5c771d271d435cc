package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/apiclient"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/erasure"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func number[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

// Causes returns a page of causes, masked.
func (d *desk) Causes(ctx context.Context, f letters.Filter, skip int) ([]operate.CauseData, error) {
	q := operate.FilterValues(f)
	q.Set("limit", number(f.Limit))
	if skip > 0 {
		q.Set("after", number(skip))
	}
	return d.causes(ctx, q)
}

// CausesBegin returns the causes whose hash begins so.
func (d *desk) CausesBegin(ctx context.Context, begin string) ([]operate.CauseData, error) {
	return d.causes(ctx, url.Values{"begins": {begin}})
}

func (d *desk) causes(ctx context.Context, q url.Values) ([]operate.CauseData, error) {
	var page operate.CausesData
	err := d.Get(ctx, &page, q, "causes")
	return page.Causes, err
}

// Heads returns letters, masked.
func (d *desk) Heads(ctx context.Context, f letters.Filter) ([]operate.LetterData, error) {
	q := operate.FilterValues(f)
	onPage(q, f.NewestFirst, f.After, f.Limit)
	var page operate.LettersData
	err := d.Get(ctx, &page, q, "letters")
	return page.Letters, err
}

// onPage says which page of a list.
func onPage(q url.Values, newest bool, after int64, limit int) {
	if q.Set("order", "oldest"); newest {
		q.Set("order", "newest")
	}
	if after > 0 {
		q.Set("after", number(after))
	}
	if limit > 0 {
		q.Set("limit", number(limit))
	}
}

// Letter returns a letter with its record, masked.
func (d *desk) Letter(ctx context.Context, seq int64) (v operate.WholeData, err error) {
	err = d.GetItem(ctx, &v, nil, "letters", number(seq))
	return v, err
}

// Unmasked returns a letter with the exact bytes of its payload, which is on record then. On a database nothing else is
// masked either.
func (d *desk) Unmasked(ctx context.Context, reason string, seq int64) (v operate.WholeData, err error) {
	if d.bare != nil { // a person on a database need not say why
		reason = cmp.Or(reason, "not said")
	}
	exact, err := d.PostBytes(ctx, apiclient.NewKey(), operate.ReasonBody{Reason: reason}, "letters", number(seq), "payload")
	if err != nil {
		return v, err
	}
	if d.bare != nil {
		d.Client = d.bare
	}
	v, err = d.Letter(ctx, seq)
	v.Payload, v.PayloadB64, v.PayloadBytes = nil, nil, len(exact)
	v.Carry(exact)
	return v, err
}

// Audit returns entries of the record.
func (d *desk) Audit(ctx context.Context, r operate.Record) ([]operate.EventData, error) {
	f := &r.Filter
	q := url.Values{"by": f.By, "id": f.MessageIDs, "redrive-id": f.RedriveIDs}
	for _, kind := range f.Kinds {
		q.Add("kind", string(kind))
	}
	for name, at := range map[string]string{"since": operate.Stamp(f.Since), "until": operate.Stamp(f.Until)} {
		if at != "" {
			q.Set(name, at)
		}
	}
	onPage(q, f.NewestFirst, f.After, f.Limit)
	if r.Seq > 0 {
		q.Set("letter", number(r.Seq))
	}
	var page operate.EventsData
	err := d.Get(ctx, &page, q, "audit")
	return page.Events, err
}

// Health says in numbers whether something is wrong.
func (d *desk) Health(ctx context.Context) (v operate.HealthData, err error) {
	err = d.Get(ctx, &v, nil, "health")
	return v, err
}

// errNotCounted is the error of letters that cannot be counted in time.
var errNotCounted = errors.New("the server could not count these letters in time: choose fewer")

// Freeze selects the letters that a filter chooses now.
func (d *desk) Freeze(ctx context.Context, f letters.Filter) (operate.Selection, error) {
	var v operate.CountData
	err := d.Get(ctx, &v, operate.FilterValues(f), "letters", "count")
	if err == nil && (!v.Counted || v.Count == nil) {
		err = apiclient.Lasts(errNotCounted)
	}
	if err != nil {
		return operate.Selection{}, err
	}
	f.MaxSeq = v.MaxSeq
	return operate.Selection{Filter: f, Number: *v.Count}, nil
}

// Decide marks the letters of a selection. A server does as many in one request as it has time for: the same key goes
// on.
func (d *desk) Decide(ctx context.Context, who operate.Person, what operate.Decision, s operate.Selection,
	id string) (n int, err error) {
	body := operate.DecideBody{ReasonBody: operate.ReasonBody{Reason: who.Reason}, Seqs: s.Seqs}
	if len(s.Seqs) == 0 {
		body.Filter = &s.Filter
	}
	key := cmp.Or(strings.TrimPrefix(id, what.Name+"-"), apiclient.NewKey())
	for {
		var v operate.DecidedData
		err := d.Post(ctx, &v, key, body, what.Name+"s")
		if errors.Is(err, campaigns.ErrNoLetters) {
			return n, nil
		}
		if err == nil && v.Letters != nil {
			n = *v.Letters
		}
		if err != nil || v.Complete {
			return n, err
		}
	}
}

// Plan says what a campaign would do. The server looks at no more letters than it has time for.
func (d *desk) Plan(ctx context.Context, _ operate.Person, r campaigns.Request, _ int) (operate.DryRun, bool, error) {
	var v operate.PlanData
	from := d.Client
	if d.bare != nil { // a change that a mask covers is seen to be one, and masked when it is printed
		from = d.bare
	}
	err := from.Post(ctx, &v, "", startOf(r), "plan")
	for i := range v.Sample {
		if edited := v.Sample[i].Edited; edited != nil {
			edited.Mask = maskOf(edited)
		}
	}
	return v.Plain(), v.Part, err
}

// maskOf lays the masks of the person over what the server has masked.
func maskOf(edited *inside.Diff) func(*privacy.Redactor) *inside.Diff {
	return func(r *privacy.Redactor) *inside.Diff {
		m := *edited
		m.Refused, m.Before, m.After = r.Text(m.Refused), r.Payload(m.Before), r.Payload(m.After)
		if m.Before != nil && bytes.Equal(m.Before, m.After) {
			m.Withheld = "only values change that are masked"
		}
		m.Metadata = slices.Clone(m.Metadata)
		for i := range m.Metadata {
			k := &m.Metadata[i]
			for _, value := range []**string{&k.Before, &k.After} {
				if *value != nil {
					masked := r.Metadata(k.Key, **value)
					*value = &masked
				}
			}
		}
		return &m
	}
}

// startBody leaves out the name of the person, whom the server knows.
type startBody struct {
	operate.StartBody
	By *string `json:"by,omitempty"`
}

func startOf(r campaigns.Request) startBody {
	r.ID = ""
	return startBody{StartBody: operate.StartBody{RequestData: operate.DataOfRequest(r), Filter: &r.Filter}}
}

// Start starts a campaign. Its id is the key of the request.
func (d *desk) Start(ctx context.Context, who operate.Person, r campaigns.Request) (campaigns.Campaign, error) {
	r.Reason = who.Reason
	return asCampaign(func(v *operate.CampaignData) error {
		return d.Post(ctx, v, apiclient.NewKey(), startOf(r), "campaigns")
	})
}

// Steer does something with a campaign.
func (d *desk) Steer(ctx context.Context, who operate.Person, id string, s operate.Steering,
	rate float64) (campaigns.Campaign, error) {
	var body any = operate.ReasonBody{Reason: who.Reason}
	if s.Rated {
		body = operate.RateBody{ReasonBody: operate.ReasonBody{Reason: who.Reason}, Rate: &rate}
	}
	return asCampaign(func(v *operate.CampaignData) error {
		return d.Post(ctx, v, apiclient.NewKey(), body, "campaigns", id, s.Name)
	})
}

// asCampaign is the campaign of an answer.
func asCampaign(ask func(*operate.CampaignData) error) (campaigns.Campaign, error) {
	var v operate.CampaignData
	err := ask(&v)
	return v.Plain(), err
}

// CampaignByID returns a campaign, masked.
func (d *desk) CampaignByID(ctx context.Context, id string) (campaigns.Campaign, error) {
	return asCampaign(func(v *operate.CampaignData) error { return d.GetItem(ctx, v, nil, "campaigns", id) })
}

// CampaignOf returns a campaign with its record, masked.
func (d *desk) CampaignOf(ctx context.Context, _ operate.Person, c campaigns.Campaign) (v operate.CampaignRecord,
	err error) {
	err = d.GetItem(ctx, &v, nil, "campaigns", c.ID)
	return v, err
}

// CampaignList returns campaigns, masked, the newest first.
func (d *desk) CampaignList(ctx context.Context, l campaigns.List) ([]campaigns.Campaign, error) {
	q := url.Values{}
	for _, state := range l.States {
		q.Add("state", string(state))
	}
	if l.Limit > 0 {
		q.Set("limit", number(l.Limit))
	}
	return d.campaigns(ctx, q)
}

// CampaignsBegin returns the campaigns whose id begins so, masked.
func (d *desk) CampaignsBegin(ctx context.Context, begin string) ([]campaigns.Campaign, error) {
	return d.campaigns(ctx, url.Values{"begins": {begin}})
}

func (d *desk) campaigns(ctx context.Context, q url.Values) ([]campaigns.Campaign, error) {
	var page operate.CampaignsData
	err := d.Get(ctx, &page, q, "campaigns")
	all := make([]campaigns.Campaign, len(page.Campaigns))
	for i, one := range page.Campaigns {
		all[i] = one.Plain()
	}
	return all, err
}

// Sequences returns keys whose messages wait, masked.
func (d *desk) Sequences(ctx context.Context, limit int) ([]sequence.Parked, error) {
	var page operate.SequencesData
	err := d.Get(ctx, &page, url.Values{"limit": {number(limit)}}, "sequences")
	return page.Sequences, err
}

// SequenceOf returns a key with messages that wait, masked.
func (d *desk) SequenceOf(ctx context.Context, seq int64, limit int) (v operate.SequenceData, err error) {
	err = d.GetItem(ctx, &v, url.Values{"limit": {number(limit)}}, "sequences", number(seq))
	return v, err
}

// DecideSequence writes down what a person decided about a key.
func (d *desk) DecideSequence(ctx context.Context, who operate.Person, seq int64, what sequence.Decision,
	all bool) (int, error) {
	var v operate.SequenceDecided
	body := operate.SequenceBody{ReasonBody: operate.ReasonBody{Reason: who.Reason}, All: all}
	err := d.Post(ctx, &v, apiclient.NewKey(), body, "sequences", number(seq), what.String())
	return v.Messages, err
}

// Policies returns the standing policies, masked.
func (d *desk) Policies(ctx context.Context) (all inside.Policies, err error) {
	err = d.Get(ctx, &all, nil, "policies")
	return all, err
}

// FreezePolicies freezes or thaws a policy, or all without a name.
func (d *desk) FreezePolicies(ctx context.Context, who operate.Person, name string, frozen bool) (bool, error) {
	path := []string{"policies", "thaw"}
	if frozen {
		path[1] = "freeze"
	}
	if name != "" {
		path = []string{"policies", name, path[1]}
	}
	var v operate.PolicyChanged
	err := d.Post(ctx, &v, apiclient.NewKey(), operate.ReasonBody{Reason: who.Reason}, path...)
	return v.Changed, err
}

// ReleaseCause lets a policy take letters of a cause again, which begins as given.
func (d *desk) ReleaseCause(ctx context.Context, who operate.Person, name, cause string) (string, error) {
	var v operate.PolicyChanged
	body := operate.ReleaseBody{ReasonBody: operate.ReasonBody{Reason: who.Reason}, Cause: cause}
	err := d.Post(ctx, &v, apiclient.NewKey(), body, "policies", name, "release")
	return v.Cause, err
}

// Outages are the outages and freezes that the instances share, or what the process holds that answers, if they share
// nothing.
func (d *desk) Outages(ctx context.Context) ([]breaker.Status, error) {
	var v operate.BreakersData
	err := d.Get(ctx, &v, nil, "outages")
	if errors.Is(err, operate.ErrNoOutages) {
		err = d.Get(ctx, &v, nil, "breakers")
	}
	return v.Breakers, err
}

// Hold freezes a handler, or all without a name, or ends that.
func (d *desk) Hold(ctx context.Context, who operate.Person, handler string, hold bool) (bool, error) {
	what := "release"
	if hold {
		what = "freeze"
	}
	var v operate.HandlerChanged
	body := operate.HandlerBody{ReasonBody: operate.ReasonBody{Reason: who.Reason}, Handler: handler,
		All: handler == ""}
	err := d.Post(ctx, &v, apiclient.NewKey(), body, "outages", what)
	return v.Changed, err
}

// BreakLeases takes letters away from programs that are gone.
func (d *desk) BreakLeases(ctx context.Context, who operate.Person, seqs []int64) ([]int64, error) {
	var v operate.LeasesData
	err := d.Post(ctx, &v, apiclient.NewKey(),
		operate.LeasesBody{ReasonBody: operate.ReasonBody{Reason: who.Reason}, Seqs: seqs}, "leases", "break")
	return v.Broken, err
}

// Erase erases a person's data. A server does as much in one request as it has time for: the same key goes on.
func (d *desk) Erase(ctx context.Context, r erasure.Request) (all erasure.Report, err error) {
	body := operate.ErasureBody{ReasonBody: operate.ReasonBody{Reason: r.Reason}, IDs: r.IDs, Metadata: r.Metadata,
		RemoveKeys: r.RemoveKeys, ForgetIDs: r.ForgetIDs}
	key, path := apiclient.NewKey(), []string{"erasures"}
	if r.DryRun {
		key, path = "", []string{"erasures", "plan"}
	}
	for {
		var v operate.ErasedData
		if err := d.Post(ctx, &v, key, body, path...); err != nil {
			return all, err
		}
		did := v.Letters + v.Delayed + v.Keys + v.Texts
		v.Letters, v.Delayed, v.Keys, v.Texts = v.Letters+all.Letters, v.Delayed+all.Delayed, v.Keys+all.Keys, v.Texts+all.Texts
		all = v.Report
		switch {
		case v.Complete:
			return all, nil
		case r.DryRun:
			return all, fmt.Errorf("the server could not look at all of it in time: it found %d letters so far",
				all.Letters)
		case did > 0:
		case all.LettersInHand+all.DelayedInHand+all.KeysInHand+len(all.CampaignsOpen) > 0:
			return all, erasure.ErrInHand
		default:
			return all, errors.New("the server did nothing more in the time of one request")
		}
	}
}

// each returns the letters that f chooses, page by page.
func each(ctx context.Context, store *letters.Store, f letters.Filter) iter.Seq2[letters.Letter, error] {
	return paged(ctx, f, store.List, func(l letters.Letter) int64 { return l.Seq })
}

// heads returns the letters that f chooses without metadata and payloads, page by page.
func heads(ctx context.Context, d *desk, f letters.Filter) iter.Seq2[operate.LetterData, error] {
	return paged(ctx, f, d.Heads, func(h operate.LetterData) int64 { return h.Seq })
}

func paged[T any](ctx context.Context, f letters.Filter, list func(context.Context, letters.Filter) ([]T, error),
	seq func(T) int64) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		f.Limit = letters.DefaultLimit
		for {
			page, err := list(ctx, f)
			if err != nil {
				yield(none, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, item := range page {
				if !yield(item, nil) {
					return
				}
			}
			last := f.After
			// a server that passes over the place would send it for ever
			if f.After = seq(page[len(page)-1]); f.After == last {
				yield(none, errors.New("the list does not go on: the server sends the same page again"))
				return
			}
		}
	}
}
