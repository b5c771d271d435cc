package api

import (
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// campaigns lists campaigns, the newest first.
func (h *Handler) campaigns(r *request) (answer, error) {
	n, err := limit(r.query, mostLimit)
	if err != nil {
		return answer{}, err
	}
	list := campaigns.List{Limit: n}
	for _, typed := range operate.Filled(r.query["state"]) {
		state := campaigns.State(typed)
		if !slices.Contains(campaigns.States, state) {
			var names []string
			for _, one := range campaigns.States {
				names = append(names, string(one))
			}
			return answer{}, operate.WrongValue("state", typed, "use one of "+strings.Join(names, ", "))
		}
		list.States = append(list.States, state)
	}
	if begin := r.query.Get("begins"); begin != "" {
		if len(r.query) > 1 {
			return answer{}, errAlone
		}
		found, err := h.Desk.CampaignsBegin(r.http.Context(), begin)
		return answer{json: h.campaignsData(r, found)}, err
	}
	last, err := place(r.query, "campaigns", 2)
	if err != nil {
		return answer{}, err
	}
	if last != nil {
		if list.Before, err = time.Parse(time.RFC3339Nano, last[0]); err != nil {
			return answer{}, badCursor(r.query.Get("cursor"))
		}
		list.BeforeID = last[1]
	}
	found, err := h.Desk.Campaigns.List(r.http.Context(), list)
	v := h.campaignsData(r, found)
	if len(found) == n {
		v.Next = cursor("campaigns", found[n-1].CreatedAt.Format(time.RFC3339Nano), found[n-1].ID)
	}
	return answer{json: v, next: v.Next}, err
}

func (h *Handler) campaignsData(r *request, found []campaigns.Campaign) operate.CampaignsData {
	v := operate.CampaignsData{Campaigns: []operate.CampaignData{}}
	for _, one := range found {
		v.Campaigns = append(v.Campaigns, h.Desk.Shown(r.person, one))
	}
	return v
}

// campaign sends a campaign and its record.
func (h *Handler) campaign(r *request) (answer, error) {
	one, err := h.Desk.Campaigns.Get(r.http.Context(), r.http.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	v, err := h.Desk.CampaignOf(r.http.Context(), r.person, one)
	return answer{json: v}, err
}

// outcomes says what became of the letters of a campaign.
func (h *Handler) outcomes(r *request) (answer, error) {
	ctx := r.http.Context()
	one, err := h.Desk.Campaigns.Get(ctx, r.http.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	v := operate.OutcomesData{Outcomes: []operate.OutcomeData{}}
	for _, o := range operate.Outcomes(one) {
		v.Outcomes = append(v.Outcomes, operate.OutcomeData{Outcome: o.Name, Means: o.Means, Letters: o.Letters,
			Bad: o.Bad})
	}
	if v.Behind, err = h.Desk.LeftBehind(ctx, one); err != nil || one.FailedAgain == 0 {
		return answer{json: v}, err
	}
	groups, slow, err := h.Desk.CameBack(ctx, one, h.Counting)
	v.Slow = slow
	for _, g := range groups {
		v.CameBack = append(v.CameBack, h.Desk.Cause(g))
	}
	return answer{json: v}, err
}

// steer makes the route of something that a person can do with a campaign.
func steer(s operate.Steering) func(*Handler, *request) (answer, error) {
	return func(h *Handler, r *request) (answer, error) {
		var body operate.RateBody
		var err error
		if s.Rated {
			err = r.read(&body)
		} else {
			err = r.read(&body.ReasonBody)
		}
		if err == nil {
			err = operate.CheckReason(body.Reason)
		}
		if err == nil && s.Rated && body.Rate == nil {
			err = invalid("rate", "is missing: give a number of letters per second; 0 is no limit")
		}
		if err != nil {
			return answer{}, err
		}
		rate := 0.0
		if body.Rate != nil {
			rate = *body.Rate
		}
		now, err := h.Desk.Steer(r.http.Context(), r.who(body.Reason), r.http.PathValue("id"), s, rate)
		return answer{json: h.Desk.Shown(r.person, now)}, err
	}
}
