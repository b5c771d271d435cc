package campaigns

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// move is a change of a campaign's state.
type move struct {
	from []State
	to   State
	what string
	act  Act
	// details are for the event.
	details string
	// set sets more columns, and args are its values. It must end with a comma.
	set  string
	args []any
	// only is one more condition.
	only string
}

// step moves a campaign within a transaction, if the state that it has allows it, and records the event. It reports
// whether the campaign moved.
func (c *Campaigns) step(ctx context.Context, tx *sql.Tx, id string, m move) (moved bool, err error) {
	args := slices.Concat(m.args, []any{c.db.Text(string(m.to)), c.db.Text(id), c.service()}, c.states(m.from))
	// last: MySQL assigns in order
	n, err := c.exec(ctx, tx, `UPDATE spillway_campaigns SET version = version + 1, `+m.set+` state = ?`+
		` WHERE id = ? AND service = ? AND state IN (`+marks(len(m.from))+`)`+m.only, args...)
	if err != nil || n == 0 {
		return false, err
	}
	return true, c.record(ctx, tx, id, m.what, m.act, m.details)
}

// call is what a person does with a campaign: how an error says it, and what is on record of it.
type call struct{ verb, what, details string }

// act is one call of a person: step, or an error that says why not.
func (c *Campaigns) act(ctx context.Context, id string, act Act, does call,
	work func(ctx context.Context, tx *sql.Tx, now Campaign) (bool, error)) (Campaign, error) {
	if err := c.usable(ctx); err != nil {
		return Campaign{}, err
	}
	if err := act.validate(); err != nil {
		return Campaign{}, wrong{err}
	}
	now, err := c.Get(ctx, id)
	if err != nil {
		return now, err
	}
	moved := false
	err = c.write(ctx, func(tx *sql.Tx) (err error) {
		if moved, err = c.acted(ctx, tx, id, act, does); moved || err != nil {
			return err
		}
		moved, err = work(ctx, tx, now)
		return err
	})
	if err != nil {
		return now, fmt.Errorf("campaigns: %s %q: %w", does.verb, now.ID, err)
	}
	now, err = c.Get(ctx, id)
	if err == nil && !moved {
		err = fmt.Errorf("%w: %s %q, which is %s", ErrState, does.verb, now.ID, now.State)
	}
	return now, err
}

// Pause stops a campaign that runs, waits for its canary, or is scheduled. Workers notice it within about a quarter of
// a second, and give back the letters that they have not begun. The error is ErrState for any other campaign.
func (c *Campaigns) Pause(ctx context.Context, id string, act Act) (Campaign, error) {
	return c.act(ctx, id, act, call{verb: "pause", what: inside.CampaignPaused},
		func(ctx context.Context, tx *sql.Tx, _ Campaign) (bool, error) {
			return c.pause(ctx, tx, id, act, "")
		})
}

// pause pauses for good, or until a number of microseconds from now, if set says so.
func (c *Campaigns) pause(ctx context.Context, tx *sql.Tx, id string, act Act, set string, args ...any) (bool, error) {
	if set == "" {
		set = `resume_at = 0,`
	}
	return c.step(ctx, tx, id, move{from: before(Paused), to: Paused, what: inside.CampaignPaused, act: act,
		set: `resume_to = state, why = ?, ` + set, args: append([]any{c.db.Text(act.Reason)}, args...)})
}

// Resume lets a paused campaign go on. If the campaign had stopped itself, because too many letters failed again or the
// canary did, Resume says that it may go on: only what comes back from now on counts. The error is ErrState if it is
// not paused.
func (c *Campaigns) Resume(ctx context.Context, id string, act Act) (Campaign, error) {
	return c.act(ctx, id, act, call{verb: "resume", what: inside.CampaignResumed},
		func(ctx context.Context, tx *sql.Tx, _ Campaign) (bool, error) {
			return c.resume(ctx, tx, id, act,
				`heard_before = succeeded + failed_again, failed_before = failed_again, redriven_before = redriven,`, ``)
		})
}

func (c *Campaigns) resume(ctx context.Context, tx *sql.Tx, id string, act Act, set,
	only string) (moved bool, err error) {
	for _, to := range []State{Running, Canary, Scheduled} {
		moved, err = c.step(ctx, tx, id, move{from: []State{Paused}, to: to, what: inside.CampaignResumed, act: act,
			set:  `why = '', resume_at = 0, next_due = now_us(), late = 0, canary_at = now_us(),` + set,
			only: ` AND resume_to = '` + string(to) + `'` + only})
		if moved || err != nil {
			break
		}
	}
	return moved, err
}

// Cancel gives a campaign up. The letters that it has not redriven wait as before, and other campaigns can take them.
// Workers give back the letters that they have not begun. The error is ErrState if the campaign has ended.
func (c *Campaigns) Cancel(ctx context.Context, id string, act Act) (Campaign, error) {
	now, err := c.act(ctx, id, act, call{verb: "cancel", what: inside.CampaignCancelled},
		func(ctx context.Context, tx *sql.Tx, _ Campaign) (bool, error) {
			return c.step(ctx, tx, id, move{from: before(Cancelled), to: Cancelled, what: inside.CampaignCancelled, act: act,
				set: `why = ?, resume_at = 0, ended_at = now_us(),`, args: []any{c.db.Text(act.Reason)}})
		})
	if err == nil {
		err = c.sweep(ctx)
	}
	return now, err
}

// SetRate changes the rate of a campaign that has not ended, from the next letters on. 0 means no limit.
func (c *Campaigns) SetRate(ctx context.Context, id string, rate float64, act Act) (Campaign, error) {
	if err := checkRate(rate); err != nil {
		return Campaign{}, wrong{err}
	}
	is := strconv.FormatFloat(rate, 'g', -1, 64)
	return c.act(ctx, id, act, call{"set the rate of", inside.CampaignRateSet, is},
		func(ctx context.Context, tx *sql.Tx, _ Campaign) (bool, error) {
			open := slices.DeleteFunc(slices.Clone(States), State.Ended)
			n, err := c.exec(ctx, tx,
				`UPDATE spillway_campaigns SET version = version + 1, rate = ?, next_due = now_us(), late = 0 WHERE id = ? AND service = ? AND state IN (`+
					marks(len(open))+`)`, append([]any{milli(rate), c.db.Text(id), c.service()}, c.states(open)...)...)
			if err != nil || n == 0 {
				return false, err
			}
			return true, c.record(ctx, tx, id, inside.CampaignRateSet, act, is)
		})
}

// milli is a rate in letters per 1,000 seconds.
func milli(rate float64) int64 { return int64(math.Round(rate * 1000)) }

// Approve lets a campaign begin that waits for approval. act.By must be another than the one who started it. Names are
// not verified: whether the caller is who it says is for the caller's program to know.
func (c *Campaigns) Approve(ctx context.Context, id string, act Act) (Campaign, error) {
	return c.act(ctx, id, act, call{verb: "approve", what: inside.CampaignApproved},
		func(ctx context.Context, tx *sql.Tx, now Campaign) (bool, error) {
			if strings.EqualFold(strings.TrimSpace(now.Request.By), strings.TrimSpace(act.By)) {
				return false, fmt.Errorf("%w: Act.By is %q, who started it: a second person must approve", ErrState, act.By)
			}
			to := Running
			if !now.Request.NotBefore.IsZero() {
				to = Scheduled
			}
			return c.step(ctx, tx, id, move{from: []State{Approval}, to: to, what: inside.CampaignApproved, act: act,
				set:  `approved_by = ?, started_at = ` + startedAt(to) + `, next_due = now_us(), late = 0,`,
				args: []any{c.db.Text(act.By)}})
		})
}

// startedAt is when a campaign that goes to a state has started.
func startedAt(to State) string {
	if to == Running {
		return `CASE WHEN started_at = 0 THEN now_us() ELSE started_at END`
	}
	return `started_at`
}

// sweepAtOnce is how many letters one transaction frees.
const sweepAtOnce = 500

// sweep frees the letters of cancelled campaigns, in small transactions. What is not freed when it ends early is freed
// by the next one: of a worker, a Cancel or a Start.
func (c *Campaigns) sweep(ctx context.Context) error {
	var ids []string
	err := c.query(ctx, func() { ids = nil }, database.Into(&ids), `SELECT id FROM spillway_campaigns WHERE service = ? AND state = 'cancelled' AND swept = 0`, c.service())
	for _, id := range ids {
		for more := true; more && err == nil; {
			err = c.write(ctx, func(tx *sql.Tx) (err error) { more, err = c.sweepSome(ctx, tx, id); return err })
		}
	}
	if err != nil {
		return fmt.Errorf("campaigns: free the letters of cancelled campaigns: %w", err)
	}
	return nil
}

// sweepSome frees letters that no worker has in hand. If one has, the campaign is not swept yet.
func (c *Campaigns) sweepSome(ctx context.Context, tx *sql.Tx, id string) (more bool, err error) {
	var seqs []int64
	err = c.within(ctx, tx, database.Into(&seqs), `SELECT seq FROM spillway_campaign_letters WHERE campaign = ? AND state = 'pending' AND claim IS NOT NULL
AND `+isFree+` ORDER BY first_failed_at, seq LIMIT ?`, c.db.Text(id), sweepAtOnce)
	if err != nil {
		return false, err
	}
	if len(seqs) > 0 {
		among, args := c.db.Among("seq", seqs)
		_, err = c.exec(ctx, tx, `UPDATE spillway_campaign_letters SET claim = NULL WHERE campaign = ? AND `+among,
			append([]any{c.db.Text(id)}, args...)...)
		return true, err
	}
	_, err = c.exec(ctx, tx, `UPDATE spillway_campaigns SET swept = 1 WHERE id = ? AND NOT EXISTS
(SELECT 1 FROM spillway_campaign_letters WHERE campaign = ? AND state = 'pending' AND claim IS NOT NULL)`, c.db.Text(id), c.db.Text(id))
	return false, err
}

// ByItself is Act.By of what a worker did.
const ByItself = "spillway"

// record adds an event within the transaction of what it records.
func (c *Campaigns) record(ctx context.Context, tx *sql.Tx, id string, what string, act Act, details string) error {
	_, err := c.exec(ctx, tx,
		`INSERT INTO spillway_campaign_events (campaign, occurred_at, what, actor, reason, details) VALUES (?, now_us(), ?, ?, ?, ?)`,
		c.db.Text(id), c.db.Text(what), c.db.Text(act.By), c.db.Text(act.Reason), c.db.Text(act.keyed(details)))
	return err
}

// recordOnce notes why a worker does not do a campaign now. What is on record already is not recorded again.
func (c *Campaigns) recordOnce(ctx context.Context, id string, what string, why string) error {
	host, _ := os.Hostname() // a worker without a name is on record too
	return c.write(ctx, func(tx *sql.Tx) error {
		known := 0
		if err := c.alone(ctx, tx, id); err != nil {
			return err
		}
		err := c.within(ctx, tx, func(rows *sql.Rows) error { return rows.Scan(&known) },
			`SELECT COUNT(*) FROM spillway_campaign_events WHERE campaign = ? AND what = ? AND reason = ?`,
			c.db.Text(id), c.db.Text(what), c.db.Text(why))
		if err != nil || known > 0 {
			return err
		}
		return c.record(ctx, tx, id, what, Act{By: ByItself, Reason: why}, boundedtext.Text("a worker on "+host, 100))
	})
}

// alone lets no other transaction change a campaign until this one ends.
func (c *Campaigns) alone(ctx context.Context, tx *sql.Tx, id string) error {
	return c.within(ctx, tx, func(*sql.Rows) error { return nil },
		`SELECT id FROM spillway_campaigns WHERE id = ?`+c.lock(), c.db.Text(id))
}

// History returns what was done with a campaign, the oldest first, at most 1,000 events after a Seq. The events
// stay on record after the campaign has ended.
func (c inner) History(ctx context.Context, id string, after int64) (events []inside.CampaignEvent, err error) {
	if _, err := c.Get(ctx, id); err != nil {
		return nil, err
	}
	err = c.query(ctx, func() { events = nil }, func(rows *sql.Rows) error {
		var e inside.CampaignEvent
		var at int64
		err := rows.Scan(&e.Seq, &at, &e.Kind, &e.By, &e.Reason, &e.Details)
		e.At = fromMicro(at)
		events = append(events, e)
		return err
	}, `SELECT seq, occurred_at, what, actor, reason, details FROM spillway_campaign_events WHERE campaign = ? AND seq > ? ORDER BY seq LIMIT 1000`,
		c.db.Text(checkedID(id)), after)
	if err != nil {
		return nil, fmt.Errorf("campaigns: history of %q: %w", checkedID(id), err)
	}
	return events, nil
}

// keyed stands before Act.Key in the details of an event.
const keyed = " request "

// keyed are the details of an event with the key.
func (a Act) keyed(details string) string {
	if a.Key == "" {
		return details
	}
	return strings.TrimSpace(details + keyed + a.Key)
}

// acted reports whether a campaign's record has a call with the key of an act. It locks the campaign, so that of two
// such calls at the same time the second finds the first. It is an error if the call on record was another one.
func (c *Campaigns) acted(ctx context.Context, tx *sql.Tx, id string, act Act, does call) (done bool, err error) {
	if act.Key == "" {
		return false, nil
	}
	if err := c.alone(ctx, tx, id); err != nil {
		return false, err
	}
	var was Act
	var did call
	err = c.within(ctx, tx, func(rows *sql.Rows) error {
		done = true
		return rows.Scan(&did.what, &was.By, &was.Reason, &did.details)
	}, `SELECT what, actor, reason, details FROM spillway_campaign_events WHERE campaign = ? AND details LIKE ?`,
		c.db.Text(id),
		c.db.Text("%"+keyed[1:]+act.Key))
	same := was.By == act.By && was.Reason == act.Reason && did.what == does.what && did.details == act.keyed(does.details)
	if err == nil && done && !same {
		err = fmt.Errorf("%w: another act on campaign %q has it", inside.ErrKeyReused, id)
	}
	return done, err
}
