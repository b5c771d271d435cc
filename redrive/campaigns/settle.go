package campaigns

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/redrive/internal/engine"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// settle writes down what became of letters: the letters, with the leases that prove it, the rows of the campaign and its
// counts, in one transaction. If a worker is killed before, the letters are free when their leases are over. It tries for
// as long as it takes: what is published must be marked, and meanwhile no more letters than have places are published.
// After the end of the worker it tries for maxWrite.
func (f *flight) settle(some []engine.Settled[result]) {
	runs, fields := true, logging.Fields{logging.Letters: len(some)}
	if some[0].Result.outcome == redriven && f.campaign.Request.Edit != nil { // the record has the edit before the redrive
		f.again(fields, func(ctx context.Context) error { return f.recordEdits(ctx, some) })
	}
	f.again(fields, func(ctx context.Context) (err error) {
		runs, err = f.settleAll(ctx, some)
		return err
	})
	if !runs { // paused, cancelled, or its canary is out: what was not begun goes back
		f.cancel()
	}
}

// again calls write until it succeeds.
func (f *flight) again(fields logging.Fields, write func(context.Context) error) {
	log, campaign := f.all.config.Logger, f.campaign.ID
	fields[logging.Campaign] = campaign
	for began, pause := time.Now(), firstPause; ; pause = min(2*pause, maxPause) {
		ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
		err := write(ctx)
		cancel()
		if err == nil && f.fails {
			eventLettersMarked.Write(log, nil, logging.Fields{logging.Campaign: campaign})
		} else if err != nil && !f.fails {
			eventLettersUnmarked.Write(log, err, fields)
		}
		f.fails = err != nil
		if err == nil || f.engine.Ending() && time.Since(began) > maxWrite {
			return
		}
		time.Sleep(pause)
	}
}

// recordEdits records that letters were published with changes.
func (f *flight) recordEdits(ctx context.Context, some []engine.Settled[result]) error {
	seqs := make([]int64, len(some))
	for i, n := range some {
		seqs[i] = n.Letter.Seq
	}
	act := f.act()
	act.Detail = inside.EditText(f.campaign.Request.Edit)
	_, err := hidden.Of(f.all.store).Record(ctx, nil, letters.EventEdited, act, seqs...)
	return err
}

// settleAll reports whether the campaign runs still. A letter that was published and could not be marked is another's
// now, or arrived again: if none has it, the campaign is through with it.
func (f *flight) settleAll(ctx context.Context, some []engine.Settled[result]) (runs bool, err error) {
	status, act := some[0].Result.Status(), f.act()
	if len(some) == 1 && status == letters.StatusRedriven && f.campaign.Request.Canary == 0 {
		is, err := f.settleOne(ctx, some[0], &runs)
		if is || err != nil {
			return runs, err
		}
	}
	if status == letters.StatusQuarantined {
		act.Reason = classify.ReasonMaxRedrives
	}
	seqs := make([]int64, len(some))
	for i, n := range some {
		seqs[i] = n.Letter.Seq
	}
	_, err = hidden.Of(f.all.store).Settle(ctx, status, act, func(tx *sql.Tx, marked []int64) (err error) {
		if status == letters.StatusQuarantined {
			seqs = marked
		}
		runs, err = f.rows(ctx, tx, some, seqs)
		return err
	}, engine.Claims(some)...)
	return runs, err
}

// settleOne is settleAll of one redriven letter, in one round trip. It reports whether it was done: it is not on all
// databases, nor without the lease.
func (f *flight) settleOne(ctx context.Context, one engine.Settled[result], runs *bool) (is bool, err error) {
	id := f.all.db.Text(f.campaign.ID)
	return hidden.Of(f.all.store).SettleOne(ctx, letters.StatusRedriven, f.act(), one.Batch.Of(one.Letter), `,
	r AS (UPDATE spillway_campaign_letters AS r SET state = 'redriven', why = '', claim = NULL, done_at = now_us()
		FROM l WHERE r.claim = l.seq AND r.claim IS NOT NULL AND COALESCE(r.campaign, '') = ? RETURNING r.seq)
UPDATE spillway_campaigns SET redriven = redriven + (SELECT COUNT(*) FROM r)
WHERE id = ? AND EXISTS (SELECT seq FROM l) RETURNING state = 'running'`, []any{id, id}, runs)
}

// rows writes down in the rows of the campaign what became of letters.
func (f *flight) rows(ctx context.Context, tx *sql.Tx, some []engine.Settled[result], seqs []int64) (runs bool, err error) {
	id, all := f.campaign.ID, f.all
	counts := make(map[outcome]int)
	if some[0].Result.Status() != "" {
		counts[some[0].Result.outcome], err = all.through(ctx, tx, id, some[0].Result.outcome, "", seqs)
	} else {
		down, refused := f.target.isDown(), make(map[result][]int64)
		for _, n := range some {
			r := n.Result
			if down != nil { // the target's fault, not the letter's
				r.rest, r.tries = 0, 0
			}
			if r != (result{}) {
				refused[r] = append(refused[r], n.Letter.Seq)
			}
		}
		for r, seqs := range refused {
			changed := 0
			if err != nil {
				break
			} else if r.outcome != back {
				changed, err = all.through(ctx, tx, id, r.outcome, r.why, seqs)
			} else {
				claimed, args := all.claimed(seqs)
				_, err = all.exec(ctx, tx,
					`UPDATE spillway_campaign_letters SET rest_until = now_us() + ?, tries = ? WHERE `+ofCampaign+claimed,
					append([]any{r.rest.Microseconds(), r.tries, all.db.Text(id)}, args...)...)
			}
			counts[r.outcome] += changed
		}
	}
	if err != nil {
		return true, err
	}
	return all.count(ctx, tx, id, f.campaign.Request.Canary, counts)
}

// through ends the campaign's work on letters, and returns how many there were. What another worker has in hand is its.
func (c *Campaigns) through(ctx context.Context, tx *sql.Tx, id string, is outcome, why string,
	seqs []int64) (int, error) {
	if len(seqs) == 0 {
		return 0, nil
	}
	claimed, args := c.claimed(seqs)
	return c.exec(ctx, tx, `UPDATE spillway_campaign_letters SET state = ?, why = ?, claim = NULL, done_at = now_us()
WHERE `+ofCampaign+claimed+` AND `+isFree, append([]any{c.db.Text(string(is)), c.db.Text(why), c.db.Text(id)}, args...)...)
}

// count adds to the counts of a campaign, and lets it wait if its canary is out. It reports whether the campaign runs
// still.
func (c *Campaigns) count(ctx context.Context, tx *sql.Tx, id string, canary int,
	counts map[outcome]int) (runs bool, err error) {
	for _, only := range []string{` AND state = 'running'`, ``} {
		n, err := c.exec(ctx, tx, `UPDATE spillway_campaigns SET claims = claims + 1, redriven = redriven + ?, quarantined = quarantined + ?,
	refused = refused + ?, failed = failed + ?, gone = gone + ? WHERE id = ?`+only,
			counts[redriven], counts[quarantined], counts[refused], counts[failed], counts[gone], c.db.Text(id))
		if runs = n > 0 && only != ""; err != nil || n > 0 {
			break
		}
	}
	if err != nil || !runs || canary == 0 {
		return runs, err
	}
	out, err := c.step(ctx, tx, id,
		move{from: []State{Running}, to: Canary, what: inside.CampaignCanaryPublished,
			act:     Act{By: ByItself, Reason: "waits for what becomes of the canary"},
			details: fmt.Sprintf("%d letters", canary), set: `canary_at = now_us(),`,
			only: ` AND canary > 0 AND redriven >= canary`})
	return !out, err
}

// pauseDown pauses the campaign if its target refuses. The first worker to notice it does so.
func (f *flight) pauseDown() {
	down := f.target.isDown()
	if down == nil {
		return
	}
	act, set, args := Act{By: ByItself, Reason: down.Error()}, "", []any(nil)
	if after := f.campaign.Request.ResumeAfter; after > 0 {
		// Doubled with each such pause, at most tenfold. Only another letter that is redriven begins anew.
		set = `resume_at = now_us() + ? * CASE WHEN pauses > 3 THEN 10 WHEN pauses = 3 THEN 8 WHEN pauses = 2 THEN 4 WHEN pauses = 1 THEN 2 ELSE 1 END, pauses = pauses + 1,`
		args = []any{after.Microseconds()}
	}
	f.again(logging.Fields{}, func(ctx context.Context) error {
		return f.all.write(ctx, func(tx *sql.Tx) error {
			_, err := f.all.pause(ctx, tx, f.campaign.ID, act, set, args...)
			return err
		})
	})
}
