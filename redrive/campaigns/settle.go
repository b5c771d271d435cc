package campaigns

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// settle writes down what became of the letters of the batch, and counts them. If it cannot, the rows are free when their leases
// are over, and the next worker finds the letters marked.
func (b *batch) settle() error {
	for start, pause := time.Now(), firstPause; ; pause = min(2*pause, maxPause) {
		ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
		err := b.write(ctx, func(tx *sql.Tx) error { return b.settleIn(ctx, tx) })
		cancel()
		if err == nil || time.Since(start) > maxWrite {
			return err
		}
		b.Campaigns.config.Logger.Error("What became of letters was not written down; the worker tries again", err, map[string]any{"campaign": b.campaign.ID})
		time.Sleep(pause)
	}
}

func (b *batch) settleIn(ctx context.Context, tx *sql.Tx) error {
	id := b.db.Text(b.campaign.ID)
	counts := make(map[outcome]int)
	same := make(map[outcome][]any) // those without a text of their own
	var edited []int64
	for _, r := range b.results {
		var err error
		switch {
		case r.outcome == back:
			if b.down != nil {
				r.rest, r.tries = 0, r.row.tries // the target's fault, not the letter's
			}
			_, err = b.exec(ctx, tx, `UPDATE spillway_campaign_letters SET token = '', leased_until = CASE WHEN ? > 0 THEN now_us() + ? ELSE 0 END, tries = ?
WHERE campaign = ? AND seq = ? AND token = ?`, r.rest.Microseconds(), r.rest.Microseconds(), max(r.tries, r.row.tries), id, r.seq, b.db.Text(b.claim.token))
		case r.why != "":
			var n int
			n, err = b.exec(ctx, tx, `UPDATE spillway_campaign_letters SET state = ?, why = ?, claim = NULL, token = '', done_at = now_us()
WHERE campaign = ? AND seq = ? AND token = ?`, b.db.Text(string(r.outcome)), b.db.Text(r.why), id, r.seq, b.db.Text(b.claim.token))
			counts[r.outcome] += n
		default:
			same[r.outcome] = append(same[r.outcome], r.seq)
		}
		if err != nil {
			return err
		}
		if r.edited {
			edited = append(edited, r.seq)
		}
	}
	for o, seqs := range same {
		args := append([]any{b.db.Text(string(o)), id, b.db.Text(b.claim.token)}, seqs...)
		n, err := b.exec(ctx, tx, `UPDATE spillway_campaign_letters SET state = ?, claim = NULL, token = '', done_at = now_us()
WHERE campaign = ? AND token = ? AND seq IN (`+marks(len(seqs))+`)`, args...)
		if err != nil {
			return err
		}
		counts[o] += n
	}
	if len(edited) > 0 {
		r := &b.campaign.Request
		_, err := b.store.Record(ctx, tx, letters.EventEdited, letters.Act{By: r.By, Reason: r.Reason, RedriveID: b.campaign.ID, Detail: r.Edit.String()}, edited...)
		if err != nil {
			return err
		}
	}
	return b.count(ctx, tx, counts)
}

// count adds to the counts of the campaign, and pauses it if its canary is out or its target is down.
func (b *batch) count(ctx context.Context, tx *sql.Tx, counts map[outcome]int) error {
	id := b.campaign.ID
	_, err := b.exec(ctx, tx, `UPDATE spillway_campaigns SET redriven = redriven + ?, quarantined = quarantined + ?, refused = refused + ?,
	failed = failed + ?, gone = gone + ? WHERE id = ?`,
		counts[redriven], counts[quarantined], counts[refused], counts[failed], counts[gone], b.db.Text(id))
	if err == nil && b.campaign.Request.Canary > 0 {
		_, err = b.step(ctx, tx, id, move{from: []State{Running}, to: Canary, what: CanaryDone, act: Act{By: ByItself, Reason: "waits for what becomes of the canary"},
			details: fmt.Sprintf("%d letters", b.campaign.Request.Canary), set: `canary_at = now_us(),`, only: ` AND canary > 0 AND redriven >= canary`})
	}
	if err == nil && b.down != nil {
		err = b.pauseDown(ctx, tx)
	}
	return err
}

// pauseDown pauses the campaign because its target refuses. The first worker to notice it does so.
func (b *batch) pauseDown(ctx context.Context, tx *sql.Tx) error {
	act := Act{By: ByItself, Reason: b.down.Error()}
	after := b.campaign.Request.ResumeAfter
	if after == 0 {
		_, err := b.pause(ctx, tx, b.campaign.ID, act, "")
		return err
	}
	// Doubled with each such pause, at most tenfold. Only another letter that is redriven begins anew.
	_, err := b.pause(ctx, tx, b.campaign.ID, act,
		`resume_at = now_us() + ? * CASE WHEN pauses > 3 THEN 10 WHEN pauses = 3 THEN 8 WHEN pauses = 2 THEN 4 WHEN pauses = 1 THEN 2 ELSE 1 END, pauses = pauses + 1,`,
		after.Microseconds())
	return err
}
