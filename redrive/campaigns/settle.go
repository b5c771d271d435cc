package campaigns

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// settledAtOnce is how many letters one transaction settles.
const settledAtOnce = 256

// settler writes down what became of the letters of a campaign, those that came in the meantime together: the letters,
// with the leases that prove it, the rows of the campaign and its counts, in one transaction. If a worker is killed
// before, the letters are free when their leases are over.
type settler struct {
	flight     *flight
	wake, idle chan struct{} // there is something to do; nothing is in hand any more
	fails      bool          // since the last transaction

	mu     sync.Mutex // guards what follows
	noted  []settled
	inHand map[int64]bool // letters that are not settled, by Seq
	ending bool
}

// settled is what became of a letter of a batch.
type settled struct {
	piece
	result
	placed bool // it has a place in flight.unmarked
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// took notes letters that are in hand from now on.
func (s *settler) took(some []*letters.Letter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range some {
		s.inHand[l.Seq] = true
	}
}

// has reports whether a letter is in hand, if its lease was lost too.
func (s *settler) has(seq int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inHand[seq]
}

// note takes what became of letters. Each letter that is in hand is noted once.
func (s *settler) note(some ...settled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noted = append(s.noted, some...)
	signal(s.wake)
}

// end says that nothing more will be noted.
func (s *settler) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	signal(s.wake)
}

func (s *settler) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// next returns letters that come to the same.
func (s *settler) next() (some []settled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rest []settled
	for _, n := range s.noted {
		if len(some) == settledAtOnce || len(some) > 0 && n.status() != some[0].status() {
			rest = append(rest, n)
		} else {
			some = append(some, n)
		}
	}
	s.noted = rest
	return some
}

func (s *settler) run() {
	for {
		some := s.next()
		if len(some) > 0 {
			s.settle(some)
		} else if s.isEnding() {
			return
		} else {
			<-s.wake
		}
	}
}

// settle tries for as long as it takes: what is published must be marked, and meanwhile no more letters than have
// places are published. After the end of the worker it tries for maxWrite.
func (s *settler) settle(some []settled) {
	runs, fields := true, logging.Fields{logging.Letters: len(some)}
	if some[0].outcome == redriven && s.flight.campaign.Request.Edit != nil { // the record has the edit before the redrive
		s.again(fields, func(ctx context.Context) error { return s.flight.recordEdits(ctx, some) })
	}
	s.again(fields, func(ctx context.Context) (err error) {
		runs, err = s.settleAll(ctx, some)
		return err
	})
	if !runs { // paused, cancelled, or its canary is out: what was not begun goes back
		s.flight.cancel()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range some {
		delete(s.inHand, n.letter.Seq)
		n.batch.lease.Done(n.letter)
		if n.placed {
			<-s.flight.unmarked
		}
	}
	if len(s.inHand) == 0 {
		signal(s.idle)
	}
}

// again calls write until it succeeds.
func (s *settler) again(fields logging.Fields, write func(context.Context) error) {
	log, campaign := s.flight.all.config.Logger, s.flight.campaign.ID
	fields[logging.Campaign] = campaign
	for began, pause := time.Now(), firstPause; ; pause = min(2*pause, maxPause) {
		ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
		err := write(ctx)
		cancel()
		if err == nil && s.fails {
			eventLettersMarked.Write(log, nil, logging.Fields{logging.Campaign: campaign})
		} else if err != nil && !s.fails {
			eventLettersUnmarked.Write(log, err, fields)
		}
		s.fails = err != nil
		if err == nil || s.isEnding() && time.Since(began) > maxWrite {
			return
		}
		time.Sleep(pause)
	}
}

// recordEdits records that letters were published with changes.
func (f *flight) recordEdits(ctx context.Context, some []settled) error {
	seqs := make([]int64, len(some))
	for i, n := range some {
		seqs[i] = n.letter.Seq
	}
	act := f.act()
	act.Detail = inside.EditText(f.campaign.Request.Edit)
	_, err := hidden.Of(f.all.store).Record(ctx, nil, letters.EventEdited, act, seqs...)
	return err
}

// settleAll reports whether the campaign runs still. A letter that was published and could not be marked is another's
// now, or arrived again: if none has it, the campaign is through with it.
func (s *settler) settleAll(ctx context.Context, some []settled) (runs bool, err error) {
	f, status := s.flight, some[0].status()
	act := f.act()
	if len(some) == 1 && status == letters.StatusRedriven && f.campaign.Request.Canary == 0 {
		is, err := s.settleOne(ctx, some[0], &runs)
		if is || err != nil {
			return runs, err
		}
	}
	if status == letters.StatusQuarantined {
		act.Reason = classify.ReasonMaxRedrives
	}
	seqs, of := make([]int64, len(some)), make(map[*batch][]*letters.Letter)
	for i, n := range some {
		seqs[i], of[n.batch] = n.letter.Seq, append(of[n.batch], n.letter)
	}
	var claims []inside.Claim[letters.Letter]
	for b, letters := range of {
		claims = append(claims, b.lease.Of(letters...))
	}
	_, err = hidden.Of(f.all.store).Settle(ctx, status, act, func(tx *sql.Tx, marked []int64) (err error) {
		if status == letters.StatusQuarantined {
			seqs = marked
		}
		runs, err = s.rows(ctx, tx, some, seqs)
		return err
	}, claims...)
	return runs, err
}

// settleOne is settleAll of one redriven letter, in one round trip. It reports whether it was done: it is not on all
// databases, nor without the lease.
func (s *settler) settleOne(ctx context.Context, one settled, runs *bool) (is bool, err error) {
	f, id := s.flight, s.flight.all.db.Text(s.flight.campaign.ID)
	return hidden.Of(f.all.store).SettleOne(ctx, letters.StatusRedriven, f.act(), one.batch.lease.Of(one.letter), `,
	r AS (UPDATE spillway_campaign_letters AS r SET state = 'redriven', why = '', claim = NULL, done_at = now_us()
		FROM l WHERE r.claim = l.seq AND r.claim IS NOT NULL AND COALESCE(r.campaign, '') = ? RETURNING r.seq)
UPDATE spillway_campaigns SET redriven = redriven + (SELECT COUNT(*) FROM r)
WHERE id = ? AND EXISTS (SELECT seq FROM l) RETURNING state = 'running'`, []any{id, id}, runs)
}

// rows writes down in the rows of the campaign what became of letters.
func (s *settler) rows(ctx context.Context, tx *sql.Tx, some []settled, seqs []int64) (runs bool, err error) {
	id, all := s.flight.campaign.ID, s.flight.all
	counts := make(map[outcome]int)
	if some[0].status() != "" {
		counts[some[0].outcome], err = all.through(ctx, tx, id, some[0].outcome, "", seqs)
	} else {
		down, refused := s.flight.target.isDown(), make(map[result][]int64)
		for _, n := range some {
			r := n.result
			if down != nil { // the target's fault, not the letter's
				r.rest, r.tries = 0, 0
			}
			if r != (result{}) {
				refused[r] = append(refused[r], n.letter.Seq)
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
	return all.count(ctx, tx, id, s.flight.campaign.Request.Canary, counts)
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
func (s *settler) pauseDown() {
	f, down := s.flight, s.flight.target.isDown()
	if down == nil {
		return
	}
	act, set, args := Act{By: ByItself, Reason: down.Error()}, "", []any(nil)
	if after := f.campaign.Request.ResumeAfter; after > 0 {
		// Doubled with each such pause, at most tenfold. Only another letter that is redriven begins anew.
		set = `resume_at = now_us() + ? * CASE WHEN pauses > 3 THEN 10 WHEN pauses = 3 THEN 8 WHEN pauses = 2 THEN 4 WHEN pauses = 1 THEN 2 ELSE 1 END, pauses = pauses + 1,`
		args = []any{after.Microseconds()}
	}
	s.again(logging.Fields{}, func(ctx context.Context) error {
		return f.all.write(ctx, func(tx *sql.Tx) error {
			_, err := f.all.pause(ctx, tx, f.campaign.ID, act, set, args...)
			return err
		})
	})
}
