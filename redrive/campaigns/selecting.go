package campaigns

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// errOther says that another process goes on with the selection, or that the campaign was cancelled.
var errOther = errors.New("another process selects, or the campaign was cancelled")

// selectLetters writes down the letters behind after. Several processes may do so at once: all but one of them find
// that the campaign is further than they know.
func (c *Campaigns) selectLetters(ctx context.Context, id string, r *Request, after, last int64) error {
	now, err := c.Get(ctx, id)
	if err != nil {
		return err
	}
	selected, out := now.Selected, leftOut(now.LeftOut)
	err = c.heads().pages(ctx, r, after, last, func(found []letters.Head, end int64) (bool, error) {
		var taken int
		taken, out, err = c.take(ctx, id, r, found, selected, out, after, end)
		selected, after = selected+taken, end
		return r.Max == 0 || selected < r.Max, err
	})
	if err == nil {
		err = c.selected(ctx, id, r, selected)
	}
	if errors.Is(err, errOther) {
		return nil
	}
	return err
}

// take writes letters down that no other campaign has, until Request.Max are selected, and counts the others before
// that.
func (c *Campaigns) take(ctx context.Context, id string, r *Request, found []letters.Head, selected int, before leftOut,
	after, end int64) (taken int, out leftOut, err error) {
	newer, err := c.newerOfHeads(ctx, found)
	if err != nil {
		return 0, before, err
	}
	err = c.write(ctx, func(tx *sql.Tx) error {
		taken, out = 0, slices.Clone(before)
		// It comes first, so that it locks: two that select the same campaign come one after the other.
		n, err := c.exec(ctx, tx, `UPDATE spillway_campaigns SET version = version + 1, select_after = ?, leased_until = now_us() + ?
WHERE id = ? AND state = 'selecting' AND select_after = ?`, end, selectLease.Microseconds(), c.db.Text(id), after)
		if err == nil && n == 0 {
			err = errOther
		}
		for rest := found; err == nil && len(rest) > 0 && (r.Max == 0 || selected+taken < r.Max); {
			var rows []letters.Head
			if rows, rest, err = c.takeable(ctx, tx, r, rest, newer, r.Max-selected-taken, &out); err != nil || len(rows) == 0 {
				continue
			}
			n, err = c.insert(ctx, tx, id, r.Act, rows)
			taken += n
			if err == nil && n < len(rows) {
				err = c.countTaken(ctx, tx, id, rows, &out)
			}
		}
		if err != nil {
			return err
		}
		text, err := json.Marshal(out.sorted())
		if err == nil {
			_, err = c.exec(ctx, tx, `UPDATE spillway_campaigns SET selected = selected + ?, left_out = ? WHERE id = ?`, taken,
				c.db.Text(string(text)), c.db.Text(id))
		}
		return err
	})
	return taken, out, err
}

// insert enters letters and returns how many no campaign had. The unique index on claim decides, not a look before.
func (c *Campaigns) insert(ctx context.Context, tx *sql.Tx, id string, act Act, rows []letters.Head) (int, error) {
	statement, conflict := `INSERT INTO`, ` ON CONFLICT DO NOTHING`
	if c.db.Kind() == database.MySQL {
		statement, conflict = `INSERT IGNORE INTO`, ``
	}
	args := make([]any, 0, 5*len(rows))
	for i, l := range rows {
		statement += map[bool]string{true: ` spillway_campaign_letters (campaign, seq, claim, first_failed_at, size) VALUES`,
			false: `,`}[i == 0] +
			` (?, ?, ?, ?, ?)`
		args = append(args, c.db.Text(id), l.Seq, l.Seq, l.FirstFailedAt.UnixMicro(), l.Size)
	}
	n, err := c.exec(ctx, tx, statement+conflict, args...)
	if err != nil || n == 0 {
		return n, err
	}
	taken, err := c.seqs(ctx, tx, id, rows)
	if err == nil {
		_, err = hidden.Of(c.store).Record(ctx, tx, letters.EventSelected,
			letters.Act{By: act.By, Reason: act.Reason, RedriveID: id}, taken...)
	}
	return n, err
}

// seqs returns those of the letters that the campaign has.
func (c *Campaigns) seqs(ctx context.Context, tx *sql.Tx, id string, of []letters.Head) (seqs []int64, err error) {
	err = c.claims(ctx, tx, of, func(seq int64, campaign string) {
		if campaign == id {
			seqs = append(seqs, seq)
		}
	})
	return seqs, err
}

// countTaken counts the letters that other campaigns have.
func (c *Campaigns) countTaken(ctx context.Context, tx *sql.Tx, id string, of []letters.Head, out *leftOut) error {
	return c.claims(ctx, tx, of, func(_ int64, campaign string) {
		if campaign != id {
			out.add(InCampaign, "", campaign, 1)
		}
	})
}

// claims calls each with the letters that a campaign has. It looks them up by the unique index alone: beside a
// condition on the campaign a database that knows nothing of the table yet would read the whole campaign.
func (c *Campaigns) claims(ctx context.Context, tx *sql.Tx, of []letters.Head,
	each func(seq int64, campaign string)) error {
	seqs := make([]int64, len(of))
	for i, l := range of {
		seqs[i] = l.Seq
	}
	among, args := c.db.Among("claim", seqs)
	return c.within(ctx, tx, func(rows *sql.Rows) error {
		var seq int64
		var campaign string
		err := rows.Scan(&seq, &campaign)
		each(seq, campaign)
		return err
	}, `SELECT seq, campaign FROM spillway_campaign_letters WHERE claim IS NOT NULL AND `+among, args...)
}

// selected ends the selection.
func (c *Campaigns) selected(ctx context.Context, id string, r *Request, n int) error {
	to, why, what, act := Running, "", inside.CampaignRan, Act{By: ByItself, Reason: "the selection is complete"}
	switch {
	case n == 0:
		to, why, what, act.Reason = Cancelled, "the selection has no letter to redrive", inside.CampaignCancelled,
			"the selection has "+
				"no letter to redrive"
	case r.Approval || c.config.ApproveOver > 0 && n > c.config.ApproveOver:
		to = Approval
	case !r.NotBefore.IsZero():
		to = Scheduled
	}
	ended := map[bool]string{true: `now_us()`, false: `ended_at`}[to == Cancelled]
	return c.write(ctx, func(tx *sql.Tx) error {
		if to == Approval || to == Scheduled { // neither is worth an event: it is in the request
			_, err := c.exec(ctx, tx,
				`UPDATE spillway_campaigns SET version = version + 1, state = ? WHERE id = ? AND state = 'selecting'`,
				c.db.Text(string(to)), c.db.Text(id))
			return err
		}
		_, err := c.step(ctx, tx, id,
			move{from: []State{Selecting}, to: to, what: what, act: act, details: fmt.Sprintf("%d letters", n),
				set:  `why = ?, started_at = ` + startedAt(to) + `, ended_at = ` + ended + `, next_due = now_us(), late = 0,`,
				args: []any{c.db.Text(why)}})
		return err
	})
}

// LeftOut are letters that a selection chooses and does not take.
type LeftOut struct {
	// Why is one of the constants NotAllowed, NoOrigin, InCampaign, Discarded, Erased, CameBack and NewerWaits.
	Why string `json:"why"`
	// Topic is the topic that is not allowed. Campaign is the id of the campaign that has the letters.
	Topic    string `json:"topic,omitempty"`
	Campaign string `json:"campaign,omitempty"`
	Letters  int    `json:"letters"`
}

// Why letters are left out.
const (
	// NotAllowed is the reason of letters whose topic is not in Config.Allow.
	NotAllowed = "not_allowed"
	// NoOrigin is the reason of letters that no origin topic is known of, in a campaign without Request.To.
	NoOrigin = "no_origin"
	// InCampaign is the reason of letters that another campaign has.
	InCampaign = "in_campaign"
	// Discarded is the reason of letters that a person gave up. letters.Store.MarkAll restores them.
	Discarded = "discarded"
	// Erased is the reason of letters that have no message any more.
	Erased = "erased"
	// CameBack is the reason of letters that a policy leaves to a person: a redrive brought their message back before.
	CameBack = "came_back"
	// NewerWaits is the reason of letters that failed again, and whose message has a newer letter that can be redriven:
	// both would publish it twice.
	NewerWaits = "newer_waits"
)

// maxLeftOut is how many different reasons are kept. Topics come with messages, and may be many.
const maxLeftOut = 50

// leftOut counts letters by reason.
type leftOut []LeftOut

func (l *leftOut) add(why, topic, campaign string, n int) {
	topic = logged(topic)
	for i := range *l {
		if o := &(*l)[i]; o.Why == why && o.Topic == topic && o.Campaign == campaign {
			o.Letters += n
			return
		}
	}
	if len(*l) >= maxLeftOut-4 && (topic != "" || campaign != "") { // the rest of a reason together
		l.add(why, "", "", n)
		return
	}
	*l = append(*l, LeftOut{why, topic, campaign, n})
}

func (l leftOut) sorted() []LeftOut {
	slices.SortStableFunc(l, func(a, b LeftOut) int { return cmp.Compare(b.Letters, a.Letters) })
	return l
}

// redrivable reports whether a redrive may take letters of the status.
func redrivable(status letters.Status) bool {
	return status != letters.StatusDiscarded && status != letters.StatusErased
}

// takes returns the topic that a letter in the store goes to by a request, or why the request does not take the letter.
func (c *Campaigns) takes(r *Request, status letters.Status, origin string) (topic, why string) {
	switch {
	case status == letters.StatusErased:
		return "", Erased
	case !redrivable(status):
		return "", Discarded
	}
	return c.target(r, origin)
}

// target returns the topic that a letter goes to by a request, or why there is none. Without an allow-list any topic
// will do: a worker decides.
func (c *Campaigns) target(r *Request, origin string) (topic, why string) {
	if topic = r.To; topic == "" {
		topic = origin
	}
	switch {
	case topic == "":
		return "", NoOrigin
	case len(c.config.Allow) > 0 && !slices.Contains(c.config.Allow, topic):
		return topic, NotAllowed
	}
	return topic, ""
}

// page is how many letters are looked at in one statement.
const page = 500

// source is where a selection is read from: whole letters, or their heads.
type source[L any] struct {
	list func(context.Context, letters.Filter) ([]L, error)
	seq  func(*L) int64
}

func (c *Campaigns) heads() source[letters.Head] {
	return source[letters.Head]{c.store.Heads, func(h *letters.Head) int64 { return h.Seq }}
}

func (c *Campaigns) whole() source[letters.Letter] {
	return source[letters.Letter]{c.store.List, func(l *letters.Letter) int64 { return l.Seq }}
}

// pages reads the selection of a request in windows of Seq, and calls each with the letters of one and the Seq that it
// ends at, until each returns false. It begins behind after and ends at last.
func (s source[L]) pages(ctx context.Context, r *Request, after, last int64,
	each func(found []L, end int64) (bool, error)) error {
	if len(r.Seqs) > 0 {
		return s.named(ctx, r, after, last, each)
	}
	f := r.Filter
	f.Limit, f.After = page, max(f.After, after)
	if f.MaxSeq == 0 || f.MaxSeq > last {
		f.MaxSeq = last
	}
	for {
		found, err := s.list(ctx, f)
		if err != nil || len(found) == 0 {
			return err
		}
		f.After = s.seq(&found[len(found)-1])
		if more, err := each(found, f.After); err != nil || !more {
			return err
		}
	}
}

// named is pages for letters that the request names.
func (s source[L]) named(ctx context.Context, r *Request, after, last int64,
	each func([]L, int64) (bool, error)) error {
	for seqs := range slices.Chunk(r.Seqs, 50) {
		var found []L
		for _, seq := range seqs {
			if seq <= after || seq > last {
				continue
			}
			one, err := s.list(ctx, letters.Filter{After: seq - 1, MaxSeq: seq, Statuses: r.Filter.Statuses})
			if err != nil {
				return err
			}
			found = append(found, one...)
		}
		if len(found) == 0 {
			continue
		}
		if more, err := each(found, s.seq(&found[len(found)-1])); err != nil || !more {
			return err
		}
	}
	return nil
}

// takeable returns the next letters that a campaign may take, and the rest behind them. It counts those that it passes
// over. If Request.Max is near, it passes over letters that another campaign has, so that they do not count towards it,
// and ends at most.
func (c *Campaigns) takeable(ctx context.Context, tx *sql.Tx, r *Request, found []letters.Head,
	newer map[int64]bool, most int, out *leftOut) (rows, rest []letters.Head, err error) {
	chunk := found[:min(50, len(found))]
	held := make(map[int64]string)
	near := r.Max > 0 && most < len(chunk)
	if near {
		if err := c.claims(ctx, tx, chunk, func(seq int64, campaign string) { held[seq] = campaign }); err != nil {
			return nil, nil, err
		}
	}
	back, err := c.cameBack(ctx, tx, r, chunk)
	if err != nil {
		return nil, nil, err
	}
	for i, l := range chunk {
		topic, why := c.takes(r, l.Status, l.Topic)
		if why == "" && back[l.Seq] {
			topic, why = "", CameBack
		}
		if why == "" && newer[l.Seq] {
			topic, why = "", NewerWaits
		}
		campaign, is := held[l.Seq]
		switch {
		case why != "":
			out.add(why, topic, "", 1)
		case is:
			out.add(InCampaign, "", campaign, 1)
		default:
			rows = append(rows, l)
		}
		if near && len(rows) == most {
			return rows, found[i+1:], nil
		}
	}
	return rows, found[len(chunk):], nil
}

// cameBack returns those of the letters that no policy may take, if a policy asks.
func (c *Campaigns) cameBack(ctx context.Context, tx *sql.Tx, r *Request, of []letters.Head) (map[int64]bool, error) {
	if r.policy == "" {
		return nil, nil
	}
	seqs := make([]int64, len(of))
	for i, l := range of {
		seqs[i] = l.Seq
	}
	return hidden.Of(c.store).CameBack(ctx, tx, seqs...)
}

// again is a letter of which a campaign asks whether its message has a newer one.
type again struct {
	seq                int64
	id, topic, handler string
}

// newer returns those letters that have a newer one of the same message, from the same handler, which can still be
// redriven: both would publish the message twice.
func (c *Campaigns) newer(ctx context.Context, all []again) (map[int64]bool, error) {
	f := letters.Filter{Limit: letters.MaxLimit,
		Statuses: []letters.Status{letters.StatusWaiting, letters.StatusRefused, letters.StatusQuarantined}}
	for _, l := range all {
		if l.id != "" {
			f.IDs = append(f.IDs, l.id)
		}
	}
	older := make(map[int64]bool)
	for len(f.IDs) > 0 {
		found, err := c.store.Heads(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, h := range found {
			for _, l := range all {
				if h.Seq > l.seq && h.MessageID == l.id && h.Topic == l.topic && h.Handler == l.handler {
					older[l.seq] = true
				}
			}
		}
		if len(found) < f.Limit {
			break
		}
		f.After = found[len(found)-1].Seq
	}
	return older, nil
}

func (c *Campaigns) newerOfHeads(ctx context.Context, found []letters.Head) (map[int64]bool, error) {
	var all []again
	for _, l := range found {
		if l.Status == letters.StatusFailedAgain {
			all = append(all, again{l.Seq, l.MessageID, l.Topic, l.Handler})
		}
	}
	return c.newer(ctx, all)
}

func (c *Campaigns) newerOfLetters(ctx context.Context, found []letters.Letter) (map[int64]bool, error) {
	var all []again
	for _, l := range found {
		if l.Status == letters.StatusFailedAgain {
			all = append(all, again{l.Seq, l.Original.UUID, l.Origin.Topic, l.Origin.Handler})
		}
	}
	return c.newer(ctx, all)
}
