package campaigns

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	// listenFor is how long a worker listens for what became of a campaign's letters after its end.
	listenFor = 24 * time.Hour
	// lag is how late a letter may appear in the store behind letters with a greater Seq: its transaction had not ended.
	lag = time.Minute
)

// allStatuses are the states that a letter can have.
var allStatuses = []letters.Status{letters.StatusWaiting, letters.StatusRedriven, letters.StatusSucceeded, letters.StatusFailedAgain,
	letters.StatusQuarantined, letters.StatusRefused, letters.StatusDiscarded}

// cursor is how far letters were looked at, and when.
type cursor struct {
	seq int64
	at  time.Time
}

// listen learns which letters of a campaign came back, and stops the campaign if they are too many.
func (r *rounds) listen(ctx context.Context, c Campaign) error {
	failedAgain, err := r.cameBack(ctx, c)
	if err != nil {
		return err
	}
	return r.write(ctx, func(tx *sql.Tx) error {
		n := 0
		for _, l := range failedAgain {
			one, err := r.failedAgain(ctx, tx, c.ID, l)
			if err != nil {
				return err
			}
			n += one
		}
		if n > 0 {
			if _, err := r.exec(ctx, tx, `UPDATE spillway_campaigns SET version = version + 1, failed_again = failed_again + ? WHERE id = ?`, n, r.db.Text(c.ID)); err != nil {
				return err
			}
		}
		if c.State.Ended() {
			return nil
		}
		return r.judge(ctx, tx, c)
	})
}

// cameBack are the letters that arrived since the campaign began and that it had redriven before. It reads those of the last
// minute again: what it does with a letter it does once.
func (r *rounds) cameBack(ctx context.Context, c Campaign) (found []letters.Letter, err error) {
	var after int64
	err = r.query(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&after) },
		`SELECT heard_after FROM spillway_campaigns WHERE id = ?`, r.db.Text(c.ID))
	if err != nil {
		return nil, err
	}
	last, err := r.store.LastSeq(ctx)
	if err != nil || last == after {
		return nil, err
	}
	f := letters.Filter{RedriveIDs: []string{c.ID}, Statuses: allStatuses, After: after, MaxSeq: last, Limit: 200}
	for {
		some, err := r.store.List(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, l := range some {
			f.After = l.Seq
			if l.Redrive.ID == c.ID { // it arrived with it; a letter that was redriven by the campaign only bears it in its mark
				found = append(found, l)
			}
		}
		if len(some) == 0 || len(found) >= 1000 { // the rest in the next round
			break
		}
	}
	return found, r.moveOn(ctx, c.ID, last)
}

// moveOn moves the place from which letters are looked at to where it was a minute ago.
func (r *rounds) moveOn(ctx context.Context, id string, last int64) error {
	if r.heard == nil {
		r.heard = make(map[string]cursor)
	}
	was, known := r.heard[id]
	if known && time.Since(was.at) < lag {
		return nil
	}
	r.heard[id] = cursor{last, time.Now()}
	if !known {
		return nil
	}
	_, err := r.db.Exec(ctx, r.db.Statement(`UPDATE spillway_campaigns SET heard_after = ? WHERE id = ? AND heard_after < ?`), was.seq, r.db.Text(id), was.seq)
	return err
}

// failedAgain writes down that a letter came back: the campaign's letter of the same message, of the same handler if there is
// one.
func (r *rounds) failedAgain(ctx context.Context, tx *sql.Tx, id string, l letters.Letter) (int, error) {
	args := []any{r.db.Text(id), r.db.Text(hash(database.Column(l.Original.UUID)))}
	const update = `UPDATE spillway_campaign_letters SET verdict = 'failed' WHERE campaign = ? AND message = ? AND state = 'redriven' AND verdict = ''`
	n, err := r.exec(ctx, tx, update+` AND handler = ?`, append(args, r.db.Text(hash(l.Origin.Handler)))...)
	if err != nil || n > 0 {
		return n, err
	}
	heard := false
	err = r.within(ctx, tx, func(*sql.Rows) error { heard = true; return nil },
		`SELECT seq FROM spillway_campaign_letters WHERE campaign = ? AND message = ? AND handler = ?`, append(args, r.db.Text(hash(l.Origin.Handler)))...)
	if err != nil || heard { // heard of before
		return 0, err
	}
	return r.exec(ctx, tx, update, args...)
}

// judge pauses a campaign of which too many letters failed again, and ends the wait for the canary.
func (r *rounds) judge(ctx context.Context, tx *sql.Tx, c Campaign) error {
	var state string
	var redriven, succeeded, failed, heardBefore, failedBefore, redrivenBefore, canary, canaryAt, now int64
	err := r.within(ctx, tx, func(rows *sql.Rows) error {
		return rows.Scan(&state, &redriven, &succeeded, &failed, &heardBefore, &failedBefore, &redrivenBefore, &canary, &canaryAt, &now)
	}, `SELECT state, redriven, succeeded, failed_again, heard_before, failed_before, redriven_before, canary, canary_at, now_us()
FROM spillway_campaigns WHERE id = ?`, r.db.Text(c.ID))
	if err != nil {
		return err
	}
	j := judgement{
		failed: failed - failedBefore, heard: succeeded + failed - heardBefore, redriven: redriven - redrivenBefore, anySucceeded: succeeded > 0,
		canary: canary, waited: time.Duration(now-canaryAt) * time.Microsecond, request: &c.Request,
	}
	switch v, why := j.verdict(State(state)); v {
	case stop:
		set := ""
		if State(state) == Canary {
			set = `canary = 0, resume_at = 0,`
		}
		moved, err := r.pause(ctx, tx, c.ID, Act{By: ByItself, Reason: why}, set)
		if moved && err == nil && set != "" { // who resumes it says that the rest may go
			_, err = r.exec(ctx, tx, `UPDATE spillway_campaigns SET resume_to = 'running' WHERE id = ?`, r.db.Text(c.ID))
		}
		return err
	case goOn:
		_, err := r.step(ctx, tx, c.ID, move{from: []State{Canary}, to: Running, what: Ran, act: Act{By: ByItself, Reason: why},
			set: `canary = 0, next_due = now_us(),`})
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
		of, what = j.redriven, "redriven"
	}
	if state == Canary {
		share := float64(j.failed) / float64(max(1, j.canary))
		switch {
		case share > j.request.StopAt:
			return stop, fmt.Sprintf("the canary failed: %d of %d letters failed again", j.failed, j.canary)
		case j.heard >= j.canary:
			return goOn, "the canary passed: all of its letters were heard of"
		case j.waited >= j.request.CanaryWait:
			return goOn, fmt.Sprintf("the canary passed: after %s, %d of %d letters failed again", j.request.CanaryWait, j.failed, j.canary)
		}
		return nothing, ""
	}
	if of >= int64(j.request.StopAfter) && float64(j.failed) > j.request.StopAt*float64(of) {
		return stop, fmt.Sprintf("%d of %d letters %s failed again", j.failed, of, what)
	}
	return nothing, ""
}
