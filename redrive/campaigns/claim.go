package campaigns

import (
	"context"
	"database/sql"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/inside"
)

const (
	// horizon is how far ahead workers take letters: a new rate holds from then on at the latest.
	horizon = 500 * time.Millisecond
	// ahead is for how long one batch lasts at a campaign's rate.
	ahead = 250 * time.Millisecond
	// maxInHand bounds the bytes of the letters of one claim. One letter may be larger.
	maxInHand = 16 << 20
	// maxReturn bounds what the return of turns adds to the end of a worker while the database hangs.
	maxReturn = 5 * time.Second
)

// claim is letters that a worker has in hand, under one token.
type claim struct {
	token   string
	rows    []row
	paced   bool      // there is a rate
	at      time.Time // of the claim
	turns   claimedTurns
	next    int64         // of the campaign's schedule, behind the turns
	stopped bool          // the campaign does not run
	none    bool          // no letter is free
	pause   time.Duration // before the next claim, if there are no rows
}

// row is a letter of a campaign that is claimed.
type row struct {
	seq   int64
	tries int
}

// claim takes the next letters of a campaign, of all workers one at a time, and gives them their turns: the database
// has when the next letter is due, so that the rate is that of the campaign. A campaign without letters that could be
// taken, now or later, is finished. A fresh worker makes nothing up for the time before it came.
func (f *flight) claim(ctx context.Context, most int, fresh bool) (k claim, err error) {
	err = f.all.write(ctx, func(tx *sql.Tx) error {
		k = claim{token: watermill.NewUUID(), pause: f.config.Poll}
		n, err := f.all.exec(ctx, tx,
			`UPDATE spillway_campaigns SET claims = claims + 1 WHERE id = ? AND service = ? AND state = 'running'`,
			f.all.db.Text(f.campaign.ID), f.all.service())
		if err != nil || n == 0 {
			k.stopped = err == nil
			return err
		}
		return f.claimNext(ctx, tx, f.campaign.ID, most, fresh, &k)
	})
	return k, err
}

// claimNext is claim while the campaign's row is locked.
func (f *flight) claimNext(ctx context.Context, tx *sql.Tx, id string, most int, fresh bool, k *claim) error {
	var rate, now, canary, redriven int64
	var s schedule
	err := f.all.within(ctx, tx, func(rows *sql.Rows) error {
		return rows.Scan(&rate, &s.next, &s.late, &now, &canary, &redriven)
	},
		`SELECT rate, next_due, late, now_us(), canary, redriven FROM spillway_campaigns WHERE id = ?`, f.all.db.Text(id))
	if err != nil {
		return err
	}
	k.at = time.Now()
	if rate > 0 {
		if lead := time.Duration(s.next-now) * time.Microsecond; lead > horizon {
			k.pause = min(lead-horizon/2, f.config.Poll)
			return nil
		}
		most = min(most, max(1, int(float64(rate)/1000*ahead.Seconds())))
	}
	if canary > 0 {
		var inHand int
		err := f.all.within(ctx, tx, func(rows *sql.Rows) error { return rows.Scan(&inHand) },
			`SELECT COUNT(*) FROM spillway_campaign_letters WHERE campaign = ? AND state = 'pending' AND token <> '' AND leased_until > now_us()`, f.all.db.Text(id))
		if err != nil {
			return err
		}
		most = min(most, int(canary-redriven)-inHand)
	}
	if most < 1 {
		return nil
	}
	if k.rows, err = f.next(ctx, tx, id, most); err != nil {
		return err
	}
	if k.none = len(k.rows) == 0; k.none {
		return f.finish(ctx, tx, id, k)
	}
	// SQLite's clock stands still for a millisecond
	args := []any{f.all.db.Text(k.token), f.config.Lease.Microseconds() + 1000, f.all.db.Text(id)}
	claimed, seqs := f.all.claimed(k.seqs())
	_, err = f.all.exec(ctx, tx, `UPDATE spillway_campaign_letters SET token = ?, leased_until = now_us() + ? WHERE `+
		ofCampaign+claimed, append(args, seqs...)...)
	if err != nil || rate == 0 {
		return err
	}
	k.paced = true
	k.turns, s = s.take(now, len(k.rows), rate, fresh)
	k.next = s.next
	_, err = f.all.exec(ctx, tx, `UPDATE spillway_campaigns SET next_due = ?, late = ? WHERE id = ?`, s.next, s.late,
		f.all.db.Text(id))
	return err
}

// returnTurns returns the turns of the last n letters, which were not begun: a slow campaign would wait for them in
// vain. If another claim has followed, its turns stay where they are, and these are lost.
func (f *flight) returnTurns(k *claim, n int) {
	if !k.paced {
		return
	}
	all := len(k.rows)
	from := k.next - (k.turns.due(all) - k.turns.due(all-n)).Microseconds()
	ctx, cancel := context.WithTimeout(context.Background(), maxReturn)
	defer cancel()
	_ = f.all.write(ctx, func(tx *sql.Tx) error { // without the database they are lost
		_, err := f.all.exec(ctx, tx, `UPDATE spillway_campaigns SET next_due = ? WHERE id = ? AND next_due = ?`,
			from, f.all.db.Text(f.campaign.ID), k.next)
		return err
	})
}

// next are the letters that failed first of those that are free, as many as may be in memory.
func (f *flight) next(ctx context.Context, tx *sql.Tx, id string, most int) (found []row, err error) {
	bytes := 0
	err = f.all.within(ctx, tx, func(rows *sql.Rows) error {
		var r row
		var size int
		err := rows.Scan(&r.seq, &r.tries, &size)
		if bytes += size; err == nil && (bytes <= maxInHand || len(found) == 0) {
			found = append(found, r)
		}
		return err
	}, `SELECT seq, tries, size FROM spillway_campaign_letters WHERE campaign = ? AND state = 'pending' AND leased_until <= now_us()
ORDER BY first_failed_at, seq LIMIT ?`, f.all.db.Text(id), most)
	return found, err
}

// finish ends a campaign that has no pending letter. If others have letters in hand, or letters rest after a refusal,
// it waits.
func (f *flight) finish(ctx context.Context, tx *sql.Tx, id string, k *claim) error {
	pending := false
	err := f.all.within(ctx, tx, func(rows *sql.Rows) error { pending = true; return nil },
		`SELECT seq FROM spillway_campaign_letters WHERE campaign = ? AND state = 'pending' LIMIT 1`, f.all.db.Text(id))
	if err != nil || pending {
		return err
	}
	k.stopped, err = f.all.step(ctx, tx, id, move{from: []State{Running}, to: Finished, what: inside.CampaignFinished,
		act: Act{By: ByItself, Reason: "the campaign is through with all letters"}, set: `ended_at = now_us(),`})
	return err
}

// due is when the letter at a place of the claim is due. It is zero without a rate.
func (k *claim) due(i int) time.Time {
	if !k.paced {
		return time.Time{}
	}
	return k.at.Add(k.turns.due(i))
}

func (k *claim) seqs() []int64 {
	seqs := make([]int64, len(k.rows))
	for i, r := range k.rows {
		seqs[i] = r.seq
	}
	return seqs
}

// ofCampaign is the condition that a row is of a campaign, for statements that find rows by claim: no index knows it.
const ofCampaign = `COALESCE(campaign, '') = ?`

// claimed is the condition that goes on with the letters that are claimed, for the index of those that are.
func (c *Campaigns) claimed(seqs []int64) (condition string, args []any) {
	condition, args = c.db.Among("claim", seqs)
	return ` AND claim IS NOT NULL AND ` + condition, args
}
