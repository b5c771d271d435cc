package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

func jsonOf(v any) ([]byte, error) { return json.Marshal(v) }

// Decide marks the letters of a selection. A server does as many in one request as it has time for: the same key goes
// on.
func (d *Desk) Decide(ctx context.Context, who operate.Person, what operate.Decision, s operate.Selection,
	id string) (n int, err error) {
	body := operate.DecideBody{ReasonBody: operate.ReasonBody{Reason: who.Reason}, Seqs: s.Seqs}
	if len(s.Seqs) == 0 {
		body.Filter = &s.Filter
	}
	key := cmp.Or(strings.TrimPrefix(id, what.Name+"-"), newKey())
	for {
		var v operate.DecidedData
		err := d.post(ctx, &v, key, body, what.Name+"s")
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
func (d *Desk) Plan(ctx context.Context, _ operate.Person, r campaigns.Request, _ int) (operate.DryRun, bool, error) {
	var v operate.PlanData
	err := d.post(ctx, &v, "", startOf(r), "plan")
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
func (d *Desk) Start(ctx context.Context, who operate.Person, r campaigns.Request) (campaigns.Campaign, error) {
	r.Reason = who.Reason
	return campaignOf(func(v *operate.CampaignData) error { return d.post(ctx, v, newKey(), startOf(r), "campaigns") })
}

// Steer does something with a campaign.
func (d *Desk) Steer(ctx context.Context, who operate.Person, id string, s operate.Steering,
	rate float64) (campaigns.Campaign, error) {
	var body any = operate.ReasonBody{Reason: who.Reason}
	if s.Rated {
		body = operate.RateBody{ReasonBody: operate.ReasonBody{Reason: who.Reason}, Rate: &rate}
	}
	return campaignOf(func(v *operate.CampaignData) error {
		return d.post(ctx, v, newKey(), body, "campaigns", id, s.Name)
	})
}

// campaignOf is the campaign of an answer.
func campaignOf(ask func(*operate.CampaignData) error) (campaigns.Campaign, error) {
	var v operate.CampaignData
	err := ask(&v)
	return v.Plain(), err
}

// CampaignByID returns a campaign, masked.
func (d *Desk) CampaignByID(ctx context.Context, id string) (campaigns.Campaign, error) {
	return campaignOf(func(v *operate.CampaignData) error { return d.getItem(ctx, v, nil, "campaigns", id) })
}

// CampaignOf returns a campaign with its record, masked.
func (d *Desk) CampaignOf(ctx context.Context, _ operate.Person, c campaigns.Campaign) (v operate.CampaignRecord,
	err error) {
	err = d.getItem(ctx, &v, nil, "campaigns", c.ID)
	return v, err
}

// CampaignList returns campaigns, masked, the newest first.
func (d *Desk) CampaignList(ctx context.Context, l campaigns.List) ([]campaigns.Campaign, error) {
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
func (d *Desk) CampaignsBegin(ctx context.Context, begin string) ([]campaigns.Campaign, error) {
	return d.campaigns(ctx, url.Values{"begins": {begin}})
}

func (d *Desk) campaigns(ctx context.Context, q url.Values) ([]campaigns.Campaign, error) {
	var page operate.CampaignsData
	err := d.get(ctx, &page, q, "campaigns")
	all := make([]campaigns.Campaign, len(page.Campaigns))
	for i, one := range page.Campaigns {
		all[i] = one.Plain()
	}
	return all, err
}

// Sequences returns keys whose messages wait, masked.
func (d *Desk) Sequences(ctx context.Context, limit int) ([]sequence.Parked, error) {
	var page operate.SequencesData
	err := d.get(ctx, &page, url.Values{"limit": {number(limit)}}, "sequences")
	return page.Sequences, err
}

// SequenceOf returns a key with messages that wait, masked.
func (d *Desk) SequenceOf(ctx context.Context, seq int64, limit int) (v operate.SequenceData, err error) {
	err = d.getItem(ctx, &v, url.Values{"limit": {number(limit)}}, "sequences", number(seq))
	return v, err
}

// DecideSequence writes down what a person decided about a key.
func (d *Desk) DecideSequence(ctx context.Context, who operate.Person, seq int64, what sequence.Decision,
	all bool) (int, error) {
	var v operate.SequenceDecided
	body := operate.SequenceBody{ReasonBody: operate.ReasonBody{Reason: who.Reason}, All: all}
	err := d.post(ctx, &v, newKey(), body, "sequences", number(seq), what.String())
	return v.Messages, err
}

// timeOf reads a time of data for programs.
func timeOf(text string) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, text) // the zero time if there is none
	return at
}
