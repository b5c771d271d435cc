package campaigns

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
)

// listenFor is how long a worker listens for what became of a campaign's letters after its end.
const listenFor = 24 * time.Hour

// longestDeaf bounds the wait for the next look, so that one slow look does not let a campaign that fails go on for
// minutes.
const longestDeaf = 20 * time.Second

// listen learns what became of the letters of a campaign, and stops the campaign if too many failed again. It looks
// less often if a look takes long.
func (r *rounds) listen(ctx context.Context, c Campaign) error {
	begun := time.Now()
	if begun.Before(r.listenAt[c.ID]) {
		return nil
	}
	heard, err := hidden.Of(r.all.store).Learn(ctx, c.ID)
	if err != nil {
		return err
	}
	if err := r.all.blockFailed(ctx, c, heard); err != nil {
		return err
	}
	r.listenAt[c.ID] = time.Now().Add(min(20*time.Since(begun), longestDeaf))
	if heard.Succeeded == c.Succeeded && heard.FailedAgain == c.FailedAgain && (c.State.Ended() || c.State == Paused) {
		return nil
	}
	return r.all.write(ctx, func(tx *sql.Tx) error {
		if heard.Succeeded != c.Succeeded || heard.FailedAgain != c.FailedAgain {
			// What another worker wrote since c was read is newer, perhaps: the next look says.
			_, err := r.all.exec(ctx, tx,
				`UPDATE spillway_campaigns SET version = version + 1, succeeded = ?, failed_again = ? WHERE id = ? AND succeeded = ? AND failed_again = ?`,
				heard.Succeeded, heard.FailedAgain, r.all.db.Text(c.ID), c.Succeeded, c.FailedAgain)
			if err != nil {
				return err
			}
		}
		if c.State.Ended() {
			return nil
		}
		return r.judge(ctx, tx, c)
	})
}

// judge pauses a campaign of which too many letters failed again, and ends the wait for the canary.
func (r *rounds) judge(ctx context.Context, tx *sql.Tx, c Campaign) error {
	var state string
	var redriven, succeeded, failed, heardBefore, failedBefore, redrivenBefore, canary, canaryAt, now int64
	err := r.all.within(ctx, tx, func(rows *sql.Rows) error {
		return rows.Scan(&state, &redriven, &succeeded, &failed, &heardBefore, &failedBefore, &redrivenBefore, &canary,
			&canaryAt, &now)
	}, `SELECT state, redriven, succeeded, failed_again, heard_before, failed_before, redriven_before, canary, canary_at, now_us()
FROM spillway_campaigns WHERE id = ?`+r.all.lock(), r.all.db.Text(c.ID)) // or a person could resume it between the verdict and the pause
	if err != nil {
		return err
	}
	j := judgement{
		failed: failed - failedBefore, heard: succeeded + failed - heardBefore, redriven: redriven - redrivenBefore,
		anySucceeded: succeeded > 0, canary: canary, waited: time.Duration(now-canaryAt) * time.Microsecond,
		request: &c.Request,
	}
	switch v, why := j.verdict(State(state)); v {
	case stop:
		set := ""
		if State(state) == Canary {
			set = `canary = 0, resume_at = 0,`
		}
		moved, err := r.all.pause(ctx, tx, c.ID, Act{By: ByItself, Reason: why}, set)
		if moved && err == nil && set != "" { // who resumes it says that the rest may go
			_, err = r.all.exec(ctx, tx, `UPDATE spillway_campaigns SET resume_to = 'running' WHERE id = ?`, r.all.db.Text(c.ID))
		}
		return err
	case goOn:
		_, err := r.all.step(ctx, tx, c.ID,
			move{from: []State{Canary}, to: Running, what: inside.CampaignRan, act: Act{By: ByItself, Reason: why},
				set: `canary = 0, next_due = now_us(), late = 0,`})
		return err
	}
	return nil
}

// judgement is what is known when a campaign is judged.
type judgement struct {
	failed, heard, redriven int64 // since the last Resume
	anySucceeded            bool
	canary                  int64 // 0 if there is none, or it passed
	waited                  time.Duration
	request                 *Request
}

type ruling int

const (
	nothing ruling = iota
	stop
	goOn
)

// verdict says whether a campaign stops, or goes on after its canary.
func (j judgement) verdict(state State) (ruling, string) {
	of, what := j.heard, "heard of"
	if !j.anySucceeded { // no success is recorded here: the share is of all
		// what was heard of was redriven, also if the worker has yet to count it
		of, what = max(j.redriven, j.heard), "redriven"
	}
	if state == Canary {
		share := float64(j.failed) / float64(max(1, j.canary))
		switch {
		case share > j.request.StopAt:
			return stop, fmt.Sprintf("the canary failed: %d of %d letters failed again", j.failed, j.canary)
		case j.heard >= j.canary:
			return goOn, "the canary passed: all of its letters were heard of"
		case j.waited >= j.request.CanaryWait && j.request.policy == "": // a person looks, no one looks at a policy
			return goOn, fmt.Sprintf("the canary passed: after %s, %d of %d letters failed again", j.request.CanaryWait,
				j.failed, j.canary)
		}
		return nothing, ""
	}
	if of >= int64(j.request.StopAfter) && float64(j.failed) > j.request.StopAt*float64(of) {
		return stop, fmt.Sprintf("%d of %d letters %s failed again", j.failed, of, what)
	}
	return nothing, ""
}
