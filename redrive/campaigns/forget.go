package campaigns

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/text/erasedtext"
)

func (in *inner) Forget(ctx context.Context, dryRun bool, values ...string) (done inside.Forgotten, err error) {
	c := (*Campaigns)(in)
	if err := c.usable(ctx); err != nil {
		return done, err
	}
	for after := ""; err == nil; {
		var some []kept
		if some, err = c.kept(ctx, after); err != nil || len(some) == 0 {
			break
		}
		for _, k := range some {
			if after = k.id; err == nil {
				err = c.forget(ctx, k, values, dryRun, &done)
			}
		}
	}
	if err == nil {
		err = c.forgetStops(ctx, values, dryRun, &done)
	}
	if err != nil {
		err = fmt.Errorf("campaigns: forget, after %d texts: %w", done.Texts, err)
	}
	return done, err
}

// kept are the texts of a campaign.
type kept struct {
	id, request, why string
	state            State
}

func (c *Campaigns) kept(ctx context.Context, after string) (some []kept, err error) {
	err = c.query(ctx, func() { some = nil }, func(rows *sql.Rows) error {
		var k kept
		var state string
		err := rows.Scan(&k.id, &state, &k.request, &k.why)
		k.state = State(state)
		some = append(some, k)
		return err
	}, `SELECT id, state, request, why FROM spillway_campaigns WHERE service = ? AND id > ? ORDER BY id LIMIT 100`,
		c.service(), c.db.Text(after))
	return some, err
}

// maxForget is how often the texts of a campaign are read again that changed between reading and writing.
const maxForget = 20

func (c *Campaigns) forget(ctx context.Context, k kept, values []string, dryRun bool, done *inside.Forgotten) error {
	for again := maxForget; ; again-- {
		request, inEdit, err := forgetRequest(k.request, values)
		if err != nil {
			return err
		}
		why := erasedtext.Replace(k.why, values)
		open := request != k.request && (k.state == Selecting || inEdit && !k.state.Ended())
		if open {
			request = k.request
		}
		written := 0
		if request != k.request || why != k.why {
			written++
		}
		if written > 0 && !dryRun {
			if written, err = c.rewrite(ctx, k, request, why); err != nil {
				return err
			}
			if written == 0 && again > 0 { // it moved on, or another Forget wrote it meanwhile
				if k, err = c.keptOf(ctx, k); err != nil {
					return err
				}
				continue
			}
			open = open || written == 0
		}
		if open {
			done.Open = append(done.Open, k.id)
		}
		done.Texts += written
		return c.forgetEvents(ctx, k.id, values, dryRun, done)
	}
}

// rewrite writes the texts of a campaign that are as they were read, and returns 0 for others.
func (c *Campaigns) rewrite(ctx context.Context, was kept, request, why string) (n int, err error) {
	err = c.write(ctx, func(tx *sql.Tx) (err error) {
		n, err = c.exec(ctx, tx, `UPDATE spillway_campaigns SET request = ?, why = ? WHERE id = ? AND state = ? AND request = ? AND why = ?`, c.db.Text(request), c.db.Text(why),
			c.db.Text(was.id), c.db.Text(string(was.state)), c.db.Text(was.request), c.db.Text(was.why))
		return err
	})
	return n, err
}

// keptOf reads the texts of a campaign again.
func (c *Campaigns) keptOf(ctx context.Context, k kept) (kept, error) {
	err := c.query(ctx, func() {}, func(rows *sql.Rows) error {
		var state string
		err := rows.Scan(&state, &k.request, &k.why)
		k.state = State(state)
		return err
	}, `SELECT state, request, why FROM spillway_campaigns WHERE id = ?`, c.db.Text(k.id))
	return k, err
}

// forgetEvents takes values from the events of a campaign. Events that another Forget wrote meanwhile are read again.
func (c *Campaigns) forgetEvents(ctx context.Context, id string, values []string, dryRun bool,
	done *inside.Forgotten) error {
	for again := maxForget; ; again-- {
		events, err := c.saying(ctx, id, values)
		if dryRun {
			done.Texts += len(events)
		}
		if err != nil || len(events) == 0 || dryRun {
			return err
		}
		written := 0
		err = c.write(ctx, func(tx *sql.Tx) error {
			written = 0
			for _, e := range events {
				n, err := c.exec(ctx, tx,
					`UPDATE spillway_campaign_events SET reason = ?, details = ? WHERE seq = ? AND reason = ? AND details = ?`,
					c.db.Text(erasedtext.Replace(e.Reason, values)), c.db.Text(erasedtext.Replace(e.Details, values)), e.Seq,
					c.db.Text(e.Reason), c.db.Text(e.Details))
				if err != nil {
					return err
				}
				written += n
			}
			return nil
		})
		if err != nil {
			return err
		}
		if done.Texts += written; written == len(events) {
			return nil
		}
		if again == 0 {
			done.Open = append(done.Open, id)
			return nil
		}
	}
}

// saying returns the events of a campaign whose texts have one of the values.
func (c *Campaigns) saying(ctx context.Context, id string, values []string) (found []inside.CampaignEvent, err error) {
	for after := int64(0); ; {
		events, err := c.Inside().History(ctx, id, after)
		if err != nil || len(events) == 0 {
			return found, err
		}
		for _, e := range events {
			if after = e.Seq; erasedtext.Replace(e.Reason, values) != e.Reason ||
				erasedtext.Replace(e.Details, values) != e.Details {
				found = append(found, e)
			}
		}
	}
}

func (in *inner) ForgetLetters(ctx context.Context, seqs ...int64) (n int, err error) {
	c := (*Campaigns)(in)
	if err := c.usable(ctx); err != nil {
		return 0, err
	}
	if len(seqs) == 0 {
		return 0, nil
	}
	if len(seqs) > settledAtOnce {
		return 0, fmt.Errorf("campaigns: forget %d letters: at most %d are possible: use several calls", len(seqs),
			settledAtOnce)
	}
	letters := make([]any, len(seqs))
	for i, seq := range seqs {
		letters[i] = seq
	}
	for after := ""; ; {
		some, err := c.kept(ctx, after)
		if err == nil && len(some) > 0 {
			after = some[len(some)-1].id
			ids := make([]any, len(some))
			for i, k := range some {
				ids[i] = c.db.Text(k.id)
			}
			err = c.write(ctx, func(tx *sql.Tx) error {
				changed, err := c.exec(ctx, tx,
					`UPDATE spillway_campaign_letters SET why = '`+erasedtext.Word+`' WHERE campaign IN (`+marks(len(ids))+
						`) AND seq IN (`+marks(len(letters))+
						`) AND why <> '' AND why <> '`+erasedtext.Word+`'`, append(ids, letters...)...)
				n += changed
				return err
			})
		}
		if err != nil {
			return n, fmt.Errorf("campaigns: forget %d letters: %w", len(seqs), err)
		}
		if len(some) == 0 {
			return n, nil
		}
	}
}
