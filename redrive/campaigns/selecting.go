package campaigns

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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
		_, err = c.store.Inside().Record(ctx, tx, string(letters.EventSelected), letters.Act{By: act.By, Reason: act.Reason,
			RedriveID: id}, taken...)
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
