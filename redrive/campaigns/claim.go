package campaigns

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
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

// batch is the letters of a claim, under leases that are renewed until what became of all of them is written down.
type batch struct {
	all      *Campaigns
	lasts    time.Duration // a lease
	campaign string
	claim    claim
	lease    inside.Claim[letters.Letter]
	letters  map[int64]*letters.Letter // by Seq; it does not change

	renewal sync.Mutex // one at a time

	mu    sync.Mutex // guards what follows
	hand  map[int64]*letters.Letter
	until time.Time
	lost  map[int64]bool
	left  int // rows of the claim that are not settled
	ended chan struct{}
}

// lease leases the letters of a claim. Those that cannot be leased are settled. After an error the rows are free again.
func (f *flight) lease(ctx context.Context, k claim) (*batch, error) {
	b := &batch{
		all: f.all, lasts: f.config.Lease, campaign: f.campaign.ID, claim: k, until: time.Now().Add(f.config.Lease),
		left: len(k.rows), ended: make(chan struct{}), letters: make(map[int64]*letters.Letter, len(k.rows)),
		hand: make(map[int64]*letters.Letter, len(k.rows)), lost: make(map[int64]bool),
	}
	var err error
	b.lease, err = hidden.Of(f.all.store).Claim(ctx, letters.Filter{Statuses: f.campaign.Request.Filter.Statuses},
		k.seqs(), f.config.Lease)
	if err != nil {
		f.returnTurns(&k, len(k.rows))
		f.settler.note(b, backs(k.rows)...)
		return nil, err
	}
	for _, l := range b.lease.Letters {
		b.letters[l.Seq], b.hand[l.Seq] = l, l
	}
	var known []result
	for _, r := range k.rows {
		l, is := b.letters[r.seq]
		switch {
		case is && l.Marked.RedriveID == b.campaign: // a worker that was killed had done it: the filter chooses its new status too
			f.release(b, l)
			known = append(known, f.doneBefore(r, l))
			delete(b.letters, r.seq)
		case !is:
			result, err := f.missing(ctx, r)
			if err != nil {
				f.returnTurns(&k, len(k.rows))
				f.release(b, b.lease.Letters...)
				f.settler.note(b, backs(k.rows)...)
				return nil, err
			}
			known = append(known, result)
		}
	}
	f.settler.note(b, known...)
	go b.renewing()
	return b, nil
}

func backs(rows []row) []result {
	results := make([]result, len(rows))
	for i, r := range rows {
		results[i].row = r
	}
	return results
}

// missing says what became of a letter that could not be leased: a drain has it, or had it, or a worker of this
// campaign did and was killed before it wrote that down.
func (f *flight) missing(ctx context.Context, r row) (result, error) {
	found, err := f.all.store.List(ctx, letters.Filter{After: r.seq - 1, MaxSeq: r.seq, Statuses: letters.Statuses()})
	switch {
	case err != nil:
		return result{}, err
	case len(found) == 0:
		return result{row: r, outcome: gone, why: "the letter is not in the store any more, or arrived again"}, nil
	}
	l := found[0]
	if l.Marked.RedriveID == f.campaign.ID {
		return f.doneBefore(r, &l), nil
	}
	if redrivable(l.Status) && chosen(f.campaign.Request.Filter.Statuses, l.Status) {
		return result{row: r, rest: f.config.Lease / 4, tries: r.tries}, nil // a lease of another is on it
	}
	return result{row: r, outcome: gone, why: "the letter is " + string(l.Status)}, nil
}

func chosen(statuses []letters.Status, status letters.Status) bool {
	if len(statuses) == 0 {
		return status == letters.StatusWaiting
	}
	return slices.Contains(statuses, status)
}

// doneBefore is what a worker that was killed did with a letter.
func (f *flight) doneBefore(r row, l *letters.Letter) result {
	if l.Status == letters.StatusQuarantined {
		return result{row: r, outcome: quarantined}
	}
	return result{row: r, outcome: redriven}
}

// renewing renews the leases of the batch three times a lease, until all of it is settled: a publisher may take longer
// than a lease.
func (b *batch) renewing() {
	tick := time.NewTicker(b.lasts / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := b.renewUnless(b.lasts * 5 / 6); err != nil {
				logging.LettersNotRenewed.Write(b.all.config.Logger, err, logging.Fields{logging.Campaign: b.campaign})
			}
		case <-b.ended:
			return
		}
	}
}

// renew lets the leases of the letters in hand, and of all rows, last from now on.
func (b *batch) renew() error {
	b.mu.Lock()
	hand := slices.Collect(maps.Values(b.hand))
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
	defer cancel()
	until := time.Now().Add(b.lasts)
	_, err := b.all.db.Exec(ctx, b.all.db.Statement(`UPDATE spillway_campaign_letters SET leased_until = now_us() + ? WHERE campaign = ? AND token = ? AND state = 'pending'`),
		b.lasts.Microseconds()+1000, b.all.db.Text(b.campaign), b.all.db.Text(b.claim.token))
	if err != nil || len(hand) == 0 {
		return err
	}
	still, err := hidden.Of(b.all.store).Renew(ctx, b.lasts, b.lease.Of(hand...))
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = until
	kept := make(map[int64]bool, len(still.Letters))
	for _, l := range still.Letters {
		kept[l.Seq] = true
	}
	for _, l := range hand {
		if _, inHand := b.hand[l.Seq]; inHand && !kept[l.Seq] {
			b.lost[l.Seq] = true
		}
	}
	return nil
}

// keep reports whether the letter's lease lasts for at least a quarter of its time. A process that stood still renews
// its leases late, when others may have taken the letters.
func (b *batch) keep(seq int64) bool {
	return b.renewUnless(b.lasts/4) == nil && !b.isLost(seq)
}

// renewUnless renews the leases unless they last for a time.
func (b *batch) renewUnless(left time.Duration) error {
	if b.lastsFor(left) {
		return nil
	}
	b.renewal.Lock()
	defer b.renewal.Unlock()
	if b.lastsFor(left) {
		return nil
	}
	return b.renew()
}

func (b *batch) lastsFor(left time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Until(b.until) >= left
}

func (b *batch) isLost(seq int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost[seq]
}

// through says that the lease of a letter is over: it is marked, or released.
func (b *batch) through(seq int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.hand, seq)
}

// settled says that what became of n more letters is written down.
func (b *batch) settled(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left -= n; b.left == 0 {
		close(b.ended)
	}
}
