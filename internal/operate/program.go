package operate

import (
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/timing/period"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// What package campaigns has, for programs: how long something takes is text, such as "1h30m". A field here hides the
// one of its name that is embedded.

// RequestData says what a campaign redrives, and how.
type RequestData struct {
	campaigns.Request
	// CanaryWait is how long the campaign waits for what becomes of the canary. Letters that are not heard of by then
	// count as not failed. Default: "1m".
	CanaryWait period.Duration `json:"canary_wait,omitempty"`
	// ResumeAfter is how long after the publisher refused letters the campaign resumes by itself. The time doubles with
	// each pause, at most tenfold. Default: "0s", the campaign waits for Resume.
	ResumeAfter period.Duration `json:"resume_after,omitempty"`
}

// DataOfRequest is a request for programs.
func DataOfRequest(r campaigns.Request) RequestData {
	return RequestData{r, period.Duration(r.CanaryWait), period.Duration(r.ResumeAfter)}
}

// Plain is the request that programs gave, or got.
func (v RequestData) Plain() campaigns.Request {
	r := v.Request
	r.CanaryWait, r.ResumeAfter = time.Duration(v.CanaryWait), time.Duration(v.ResumeAfter)
	return r
}

// CampaignData is a campaign as it stood when it was read.
type CampaignData struct {
	campaigns.Campaign
	// Request is what was asked for, and the defaults.
	Request RequestData `json:"request"`
	// Remaining is about how long the campaign will still run, at its rate, or without one at its speed so far. It is
	// missing if that is not known.
	Remaining period.Duration `json:"remaining,omitempty"`
}

// DataOfCampaign is a campaign for programs.
func DataOfCampaign(c campaigns.Campaign) CampaignData {
	return CampaignData{c, DataOfRequest(c.Request), period.Duration(c.Remaining)}
}

// Plain is the campaign that a program got.
func (v CampaignData) Plain() campaigns.Campaign {
	c := v.Campaign
	c.Request, c.Remaining = v.Request.Plain(), time.Duration(v.Remaining)
	return c
}

// CampaignRecord is a campaign with its record.
type CampaignRecord struct {
	CampaignData
	Behind []inside.Behind        `json:"left_behind,omitempty"`
	Events []inside.CampaignEvent `json:"events"`
}

// PlanData is what a campaign would do.
type PlanData struct {
	DryRun
	// Takes is how long the campaign would run at its rate. It is missing without a rate.
	Takes period.Duration `json:"takes,omitempty"`
	// Part reports that there may be more letters than the dry run reads.
	Part bool `json:"part,omitempty"`
}

// DataOfPlan is a dry run for programs.
func DataOfPlan(p DryRun, part bool) PlanData { return PlanData{p, period.Duration(p.Takes), part} }

// Plain is the dry run that a program got.
func (v PlanData) Plain() DryRun {
	p := v.DryRun
	p.Takes = time.Duration(v.Takes)
	return p
}
