package campaigns

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/redrive/internal/engine"
	"github.com/watermill-spillway/spillway/redrive/letters"
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

// claim is letters that a worker has in hand. Their lease is that of the Store: none other takes them.
type claim struct {
	rows    []row
	leased  inside.Claim[letters.Letter]
	paced   bool      // there is a rate
	at      time.Time // of the claim
	turns   claimedTurns
	next    int64         // of the campaign's schedule, behind the turns
	stopped bool          // the campaign does not run
	pause   time.Duration // before the next claim, if there are no rows
}

// row is a letter of a campaign.
type row struct {
	seq   int64
	tries int
}

// take claims the next letters of a campaign, and reads them. After an error, and without letters, none is claimed.
func (f *flight) take(ctx context.Context, fresh bool) (k claim, b *engine.Batch, err error) {
	k, err = f.claim(ctx, f.config.batch, fresh)
	if len(k.rows) == 0 {
		return k, nil, err
	}
	// an error may be that of a commit whose answer was lost: then its letters are leased
	c, notRead := hidden.Of(f.all.store).Leased(ctx, k.leased, k.seqs())
	if notRead != nil || len(c.Letters) == 0 {
		f.returnTurns(&k, len(k.rows))
		return k, nil, errors.Join(err, notRead)
	}
	read := make(map[int64]*letters.Letter, len(c.Letters))
	for _, l := range c.Letters {
		read[l.Seq] = l
	}
	k.rows = slices.DeleteFunc(k.rows, func(r row) bool { return read[r.seq] == nil })
	b = &engine.Batch{Requeued: func(n int) { f.returnTurns(&k, n) },
		Turn: func(ctx context.Context, place int) bool { return f.turns.wait(ctx, k.due(place), k.turns.spacing) }}
	f.every.Store(int64(k.turns.every))
	for i, r := range k.rows { // in this order
		c.Letters[i], b.Tries = read[r.seq], append(b.Tries, r.tries)
	}
	b.Lease = engine.Hold(f.all.store, c, f.config.Lease, func(err error) {
		logging.LettersNotRenewed.Write(f.all.config.Logger, err, logging.Fields{logging.Campaign: f.campaign.ID})
	})
	return k, b, nil
}

// claim leases the next letters of a campaign, of all workers one at a time, and gives them their turns: the database
// has when the next letter is due, so that the rate is that of the campaign. A campaign without letters that could be
// taken, now or later, is finished. A fresh worker makes nothing up for the time before it came.
func (f *flight) claim(ctx context.Context, most int, fresh bool) (k claim, err error) {
	err = f.all.write(ctx, func(tx *sql.Tx) error {
		k = claim{pause: f.config.Poll}
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
			return f.finish(ctx, tx, id, k) // no turn is needed for that
		}
		most = min(most, max(1, int(float64(rate)/1000*ahead.Seconds())))
	}
	if canary > 0 {
		inHand, err := f.inHand(ctx, tx, canary)
		if err != nil {
			return err
		}
		most = min(most, int(canary-redriven)-inHand)
	}
	if most < 1 {
		return nil
	}
	if k.rows, err = f.next(ctx, tx, id, most, k); err != nil || len(k.rows) == 0 || rate == 0 {
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
		_, err := f.all.exec(ctx, tx, `UPDATE spillway_campaigns SET next_due = ? WHERE id = ? AND next_due = ?
AND EXISTS (SELECT token FROM spillway_letter_claims WHERE token = ?)`, // it was committed
			from, f.all.db.Text(f.campaign.ID), k.next, f.all.db.Bytes(k.leased.Token))
		return err
	})
}

// The lease of a letter, looked up for each row of a campaign: joined, a database that knows nothing of the tables yet
// would read all letters.
const (
	leaseOf = `COALESCE((SELECT l.leased_until FROM spillway_dead_letters AS l WHERE l.seq = spillway_campaign_letters.seq), 0)`
	isFree  = leaseOf + ` <= now_us()`
)

// inHand is how many of the first letters of a campaign that are pending some worker has in hand: they are taken in
// this order.
func (f *flight) inHand(ctx context.Context, tx *sql.Tx, canary int64) (n int, err error) {
	err = f.all.within(ctx, tx, func(rows *sql.Rows) error {
		var leased bool
		err := rows.Scan(&leased)
		if leased {
			n++
		}
		return err
	}, `SELECT CASE WHEN `+isFree+` THEN 0 ELSE 1 END FROM spillway_campaign_letters WHERE campaign = ? AND state = 'pending'
ORDER BY first_failed_at, seq LIMIT ?`, f.all.db.Text(f.campaign.ID), canary+maxBatch)
	return n, err
}

// next leases the letters that failed first of those that are free, as many as may be in memory. Letters that the
// campaign cannot redrive any more are settled.
func (f *flight) next(ctx context.Context, tx *sql.Tx, id string, most int, k *claim) (rows []row, err error) {
	bytes := 0
	tries, why := make(map[int64]int), make(map[string][]int64)
	var seqs []int64
	err = f.all.within(ctx, tx, func(rows *sql.Rows) error {
		var seq int64
		var tried, size int
		var status letters.Status
		if err := rows.Scan(&seq, &tried, &size, &status); err != nil {
			return err
		}
		bytes += size
		switch {
		case f.engine.Has(seq): // it arrived again meanwhile
		case status == "":
			const gone = "the letter is not in the store any more, or arrived again"
			why[gone] = append(why[gone], seq)
		case !redrivable(status) || !chosen(f.campaign.Request.Filter.Statuses, status):
			why["the letter is "+string(status)] = append(why["the letter is "+string(status)], seq)
		case bytes <= maxInHand || len(seqs) == 0:
			seqs, tries[seq] = append(seqs, seq), tried
		}
		return nil
	}, `SELECT seq, tries, size, COALESCE((SELECT l.status FROM spillway_dead_letters AS l WHERE l.seq = spillway_campaign_letters.seq), '')
FROM spillway_campaign_letters WHERE campaign = ? AND state = 'pending' AND rest_until <= now_us() AND `+isFree+`
ORDER BY first_failed_at, seq LIMIT ?`, f.all.db.Text(id), most)
	counts := make(map[outcome]int)
	for because, some := range why {
		n := 0
		if err == nil {
			n, err = f.all.through(ctx, tx, id, gone, because, some)
		}
		counts[gone] += n
	}
	if err == nil && len(why) > 0 {
		k.pause = 0
		_, err = f.all.count(ctx, tx, id, 0, counts)
	}
	switch {
	case err != nil:
		return nil, err
	case len(seqs) > 0:
		var leased []int64
		k.leased, leased, err = hidden.Of(f.all.store).Lease(ctx, tx,
			letters.Filter{Statuses: f.campaign.Request.Filter.Statuses}, seqs, f.config.Lease)
		free := make(map[int64]bool, len(leased))
		for _, seq := range leased {
			free[seq] = true
		}
		for _, seq := range seqs { // in this order
			if free[seq] {
				rows = append(rows, row{seq, tries[seq]})
			}
		}
		return rows, err
	case len(why) > 0:
		return nil, nil
	}
	return nil, f.finish(ctx, tx, id, k)
}

func chosen(statuses []letters.Status, status letters.Status) bool {
	if len(statuses) == 0 {
		return status == letters.StatusWaiting
	}
	return slices.Contains(statuses, status)
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
