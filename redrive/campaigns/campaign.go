package campaigns

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Campaign is a campaign as it stood when it was read.
type Campaign struct {
	// ID is the x-redrive-id of every letter that the campaign redrives.
	ID    string `json:"id"`
	State State  `json:"state"`
	// Why says why the campaign is paused or cancelled.
	Why string `json:"why,omitempty"`
	// Request is what Start was called with, and the defaults.
	Request Request `json:"request"`
	// Rate is the rate now. SetRate changes it. 0 means no limit.
	Rate float64 `json:"rate"`
	// Policy is the name of the standing policy that started the campaign. It is empty if a person did.
	Policy string `json:"policy,omitempty"`
	// ApprovedBy names the second person, if one approved.
	ApprovedBy string `json:"approved_by,omitempty"`

	CreatedAt time.Time `json:"created_at"`
	// StartedAt is when the campaign first ran. It is zero before.
	StartedAt time.Time `json:"started_at,omitzero"`
	// EndedAt is when the campaign finished or was cancelled. It is zero before.
	EndedAt time.Time `json:"ended_at,omitzero"`
	// ResumeAt is when a paused campaign resumes by itself. It is zero if it waits for Resume.
	ResumeAt time.Time `json:"resume_at,omitzero"`

	// The counts say how many letters have come to what. Selected is the sum of Pending, Redriven, Quarantined,
	// Refused, Failed and Gone.

	// Selected counts the letters of the campaign. They are written down when it starts. What arrives later is not
	// among them.
	Selected int `json:"selected"`
	// Pending counts the letters that the campaign is not through with. They stay as they are when it is cancelled.
	Pending int `json:"pending"`
	// Redriven counts the letters that were published.
	Redriven int `json:"redriven"`
	// Quarantined counts the letters that had been redriven Config.MaxRedrives times already.
	Quarantined int `json:"quarantined"`
	// Refused counts the letters whose topic is not allowed, or that the edit does not fit. They wait as before.
	Refused int `json:"refused"`
	// Failed counts the letters that the publisher refused for what they are, or again and again. They wait as before.
	Failed int `json:"failed"`
	// Gone counts the letters that something else redrove, discarded or purged in the meantime.
	Gone int `json:"gone"`

	// Succeeded counts the redriven letters that are known to have succeeded.
	Succeeded int `json:"succeeded"`
	// FailedAgain counts the redriven letters that came back as dead letters.
	FailedAgain int `json:"failed_again"`
	// NotHeard counts the redriven letters that nothing is known of. Where successes are not recorded, these have most
	// likely succeeded.
	NotHeard int `json:"not_heard"`

	// LeftOut are the letters that the selection did not take, by reason.
	LeftOut []LeftOut `json:"left_out,omitempty"`
	// Remaining is about how long the campaign will still run, at its rate, or without one at its speed so far. It is 0
	// if that is not known.
	Remaining time.Duration `json:"remaining,omitempty"`
}

const campaignColumns = `id, state, request, created_at, why, approved_by, left_out, started_at, ended_at, resume_at, rate,
	selected, redriven, quarantined, refused, failed, gone, succeeded, failed_again, policy, now_us()`

func scanCampaign(rows *sql.Rows) (c Campaign, err error) {
	var state, request, leftOut string
	var created, started, ended, resume, rate, now int64
	err = rows.Scan(&c.ID, &state, &request, &created, &c.Why, &c.ApprovedBy, &leftOut, &started, &ended, &resume, &rate,
		&c.Selected, &c.Redriven, &c.Quarantined, &c.Refused, &c.Failed, &c.Gone, &c.Succeeded, &c.FailedAgain, &c.Policy,
		&now)
	if err != nil {
		return c, err
	}
	c.State, c.Rate = State(state), float64(rate)/1000
	c.CreatedAt, c.StartedAt, c.EndedAt, c.ResumeAt = fromMicro(created), fromMicro(started), fromMicro(ended),
		fromMicro(resume)
	c.Pending = c.Selected - c.Redriven - c.Quarantined - c.Refused - c.Failed - c.Gone
	c.NotHeard = max(0, c.Redriven-c.Succeeded-c.FailedAgain)
	c.Remaining = c.remaining(time.Duration(now-started) * time.Microsecond)
	if leftOut != "" {
		if err := json.Unmarshal([]byte(leftOut), &c.LeftOut); err != nil {
			return c, fmt.Errorf("campaigns: read campaign %q: %w", c.ID, err)
		}
	}
	c.Request, err = decoded(request)
	c.Request.policy = c.Policy
	return c, err
}

func (c *Campaign) remaining(running time.Duration) time.Duration {
	done := c.Selected - c.Pending
	switch {
	case c.State.Ended() || c.Pending == 0:
		return 0
	case c.Rate > 0:
		return time.Duration(float64(c.Pending) / c.Rate * float64(time.Second))
	case c.StartedAt.IsZero() || done == 0:
		return 0
	}
	return time.Duration(float64(running) / float64(done) * float64(c.Pending))
}

func fromMicro(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// Get returns a campaign of the service. The error is ErrNotFound if there is none of this id.
func (c *Campaigns) Get(ctx context.Context, id string) (Campaign, error) {
	if err := c.usable(ctx); err != nil {
		return Campaign{}, err
	}
	found, err := c.list(ctx, ` WHERE id = ? AND service = ?`, c.db.Text(checkedID(id)), c.service())
	if err != nil {
		return Campaign{}, fmt.Errorf("campaigns: get %q: %w", checkedID(id), err)
	}
	if len(found) == 0 {
		return Campaign{}, fmt.Errorf("%w: %q", ErrNotFound, checkedID(id))
	}
	return found[0], nil
}

// List says which campaigns List returns.
type List struct {
	// States are the states to list. Default: all.
	States []State
	// Before lists only campaigns that were created before. It pages: give the CreatedAt of the last one. Default: no
	// bound.
	Before time.Time
	// BeforeID is the ID of the last campaign, with Before. Of campaigns that were created at the same time none is
	// left out then. Default: none, and those created at Before are not listed.
	BeforeID string
	// Limit is the largest number of campaigns. Default: 100. At most 1,000.
	Limit int
}

// List returns the campaigns of the service, the newest first.
func (c *Campaigns) List(ctx context.Context, l List) ([]Campaign, error) {
	if err := c.usable(ctx); err != nil {
		return nil, err
	}
	if l.Limit == 0 {
		l.Limit = 100
	}
	if l.Limit < 0 || l.Limit > 1000 {
		return nil, fmt.Errorf("campaigns: List.Limit is %d: it must be 1 to 1,000; page with Before", l.Limit)
	}
	where, args := ` WHERE service = ?`, []any{c.service()}
	if len(l.States) > 0 {
		where += ` AND state IN (` + marks(len(l.States)) + `)`
		args = append(args, c.states(l.States)...)
	}
	switch {
	case l.Before.IsZero():
	case l.BeforeID == "":
		where += ` AND created_at < ?`
		args = append(args, l.Before.UnixMicro())
	default:
		where += ` AND (created_at < ? OR created_at = ? AND id > ?)`
		args = append(args, l.Before.UnixMicro(), l.Before.UnixMicro(), c.db.Text(checkedID(l.BeforeID)))
	}
	found, err := c.list(ctx, where+` ORDER BY created_at DESC, id LIMIT ?`, append(args, l.Limit)...)
	if err != nil {
		return nil, fmt.Errorf("campaigns: list: %w", err)
	}
	return found, nil
}

func (c *Campaigns) list(ctx context.Context, where string, args ...any) (found []Campaign, err error) {
	err = c.query(ctx, func() { found = nil }, func(rows *sql.Rows) error {
		one, err := scanCampaign(rows)
		found = append(found, one)
		return err
	}, `SELECT `+campaignColumns+` FROM spillway_campaigns`+where, args...)
	return found, err
}

// marks are n placeholders.
func marks(n int) string { return "?" + strings.Repeat(",?", n-1) }

func (c *Campaigns) states(states []State) []any {
	args := make([]any, len(states))
	for i, s := range states {
		args[i] = c.db.Text(string(s))
	}
	return args
}

// checkedID bounds an id before it goes into a statement or an error. No id of ours is longer, or has other characters.
func checkedID(id string) string {
	id = strings.Map(func(r rune) rune {
		if r < '!' || r > '~' {
			return '?'
		}
		return r
	}, id)
	return id[:min(len(id), 64)]
}

// State is where a campaign stands.
type State string

const (
	// Selecting is the state of a campaign whose letters are being written down. Nothing is published.
	Selecting State = "selecting"
	// Approval is the state of a campaign that waits for Approve by a second person.
	Approval State = "approval"
	// Scheduled is the state of a campaign that waits for Request.NotBefore.
	Scheduled State = "scheduled"
	// Running is the state of a campaign that workers work on.
	Running State = "running"
	// Canary is the state of a campaign that published its first letters, and waits for what becomes of them.
	Canary State = "canary"
	// Paused is the state of a campaign that waits for Resume, or for Campaign.ResumeAt.
	Paused State = "paused"
	// Cancelled is the state of a campaign that was given up. The letters that it did not redrive wait as before.
	Cancelled State = "cancelled"
	// Finished is the state of a campaign that is through with all its letters.
	Finished State = "finished"
)

// States are all states, in the order in which a campaign can pass through them.
var States = []State{Selecting, Approval, Scheduled, Running, Canary, Paused, Cancelled, Finished}

// Ended reports whether a campaign in this state publishes nothing any more.
func (s State) Ended() bool { return s == Cancelled || s == Finished }

// steps are the states that may follow each state.
var steps = map[State][]State{
	Selecting: {Approval, Scheduled, Running, Cancelled},
	Approval:  {Scheduled, Running, Cancelled},
	Scheduled: {Running, Paused, Cancelled},
	Running:   {Approval, Canary, Paused, Cancelled, Finished},
	Canary:    {Running, Paused, Cancelled},
	Paused:    {Scheduled, Running, Canary, Cancelled},
}

// before returns the states that may become state to.
func before(to State) (from []State) {
	for _, s := range States {
		if slices.Contains(steps[s], to) {
			from = append(from, s)
		}
	}
	return from
}

var (
	// ErrNotFound is the error of an id that no campaign of the service has.
	ErrNotFound = errors.New("campaigns: no such campaign")
	// ErrState is the error of a call that the state of the campaign does not allow.
	ErrState = errors.New("campaigns: the state of the campaign does not allow it")
	// ErrNoLetters is the error of a Start whose selection has no letter that could be redriven.
	ErrNoLetters = errors.New("campaigns: no letter to redrive")
	// ErrRequest is the error of a Request, a rate or an Act that no campaign can have. The text of the error names the
	// field. Nothing was changed.
	ErrRequest = errors.New("campaigns: the request cannot be carried out")
)

// Holding returns those of the letters, at most MaxSeqs, that a campaign of the service has and is not
// through with, each with the id of the campaign. Other campaigns do not take them. A campaign that was cancelled
// has a letter until its worker gives it back.
func (c inner) Holding(ctx context.Context, seqs ...int64) (map[int64]string, error) {
	if len(seqs) > MaxSeqs {
		return nil, fmt.Errorf("campaigns: holding %d letters: at most %d are possible: use several calls", len(seqs),
			MaxSeqs)
	}
	holding, err := c.holding(ctx, seqs)
	if err != nil {
		return nil, fmt.Errorf("campaigns: holding %d letter(s): %w", len(seqs), err)
	}
	return holding, nil
}

func (c *Campaigns) holding(ctx context.Context, seqs []int64) (map[int64]string, error) {
	taken := make(map[int64]string)
	if len(seqs) == 0 {
		return taken, nil
	}
	claimed, args := c.claimed(seqs)
	err := c.query(ctx, func() { clear(taken) }, func(rows *sql.Rows) error {
		var seq int64
		var id string
		err := rows.Scan(&seq, &id)
		taken[seq] = id
		return err
	}, `SELECT seq, campaign FROM spillway_campaign_letters JOIN spillway_campaigns ON spillway_campaigns.id = campaign
WHERE service = ?`+claimed, append([]any{c.service()}, args...)...)
	return taken, err
}

// inCampaigns is holding for letters that were read.
func (c *Campaigns) inCampaigns(ctx context.Context, found []letters.Letter) (map[int64]string, error) {
	seqs := make([]int64, len(found))
	for i, l := range found {
		seqs[i] = l.Seq
	}
	return c.holding(ctx, seqs)
}

// maxBehind is how many reasons LeftBehind returns: errors of publishers come with messages, and may be many.
const maxBehind = 20

// LeftBehind says why a campaign left letters behind that it had selected: those that were refused, failed or are
// gone, by reason, the most first, at most 20 reasons.
func (c inner) LeftBehind(ctx context.Context, id string) (behind []inside.Behind, err error) {
	if _, err := c.Get(ctx, id); err != nil {
		return nil, err
	}
	err = c.query(ctx, func() { behind = nil }, func(rows *sql.Rows) error {
		var b inside.Behind
		err := rows.Scan(&b.Outcome, &b.Why, &b.Letters)
		behind = append(behind, b)
		return err
	}, `SELECT state, why, COUNT(*) FROM spillway_campaign_letters WHERE campaign = ? AND state IN ('`+string(refused)+`', '`+string(failed)+`', '`+string(gone)+`')
GROUP BY state, why ORDER BY COUNT(*) DESC, why LIMIT ?`, c.db.Text(checkedID(id)), maxBehind)
	if err != nil {
		return nil, fmt.Errorf("campaigns: what %q left behind: %w", checkedID(id), err)
	}
	return behind, nil
}
