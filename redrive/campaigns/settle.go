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

const (
	// settleEvery is how often what became of letters is written down.
	settleEvery = 250 * time.Millisecond
	// settledAtOnce is how many rows one statement changes.
	settledAtOnce = 500
)

// settler writes down what became of the letters of a campaign, and counts them. If it is killed before, the rows are
// free when their leases are over, and the next worker finds the letters marked.
type settler struct {
	all              *Campaigns
	campaign         Campaign
	target           *target
	cancel           context.CancelFunc // of the flight
	wake, full, idle chan struct{}      // there is something to do; it may be all; nothing is in hand any more

	mu     sync.Mutex // guards what follows
	noted  []noted
	inHand int // rows of claims that are not settled
	ending bool
	ended  bool // what was noted until the end is settled
}

// noted is what became of a letter of a batch.
type noted struct {
	result
	of *batch
}

func newSettler(all *Campaigns, c Campaign, t *target) *settler {
	return &settler{all: all, campaign: c, target: t, wake: make(chan struct{}, 1), full: make(chan struct{}, 1),
		idle: make(chan struct{}, 1)}
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// claimed counts rows that are in hand from now on.
func (s *settler) claimed(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inHand += n
}

// note takes what became of letters of a batch. Each row of the batch is noted once.
func (s *settler) note(b *batch, results ...result) {
	if len(results) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range results {
		s.noted = append(s.noted, noted{r, b})
	}
	signal(s.wake)
	if len(s.noted) == s.inHand || len(s.noted) >= settledAtOnce {
		signal(s.full)
	}
}

// end says that nothing more will be noted.
func (s *settler) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	signal(s.wake)
	signal(s.full)
}

func (s *settler) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// wait waits for a time, or until nothing is in hand. If nothing is free it is no use to look before that.
func (s *settler) wait(ctx context.Context, k claim) {
	pause := k.pause
	if k.none && s.hasInHand() {
		pause = max(pause, time.Second)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.idle:
	case <-ctx.Done():
	}
}

func (s *settler) hasInHand() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inHand > 0
}

func (s *settler) run() {
	for !s.isEnding() {
		<-s.wake
		timer := time.NewTimer(settleEvery)
		select {
		case <-s.full:
		case <-timer.C:
		}
		timer.Stop()
		s.settle()
	}
	s.settle()
}

// settle writes down what was noted. It tries for as long as it takes, and after the end of the worker for maxWrite.
func (s *settler) settle() {
	s.mu.Lock()
	some, last := s.noted, s.ending && !s.ended // a second pause would undo a resume
	s.noted, s.ended = nil, s.ending
	s.mu.Unlock()
	if len(some) == 0 && (!last || s.target.isDown() == nil) {
		return
	}
	runs, fails := true, false
	for start, pause := time.Now(), firstPause; ; pause = min(2*pause, maxPause) {
		ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
		err := s.all.write(ctx, func(tx *sql.Tx) (err error) { runs, err = s.settleIn(ctx, tx, some, last); return err })
		cancel()
		if err == nil && fails {
			logging.OutcomeSaved.Write(s.all.config.Logger, nil, logging.Fields{logging.Campaign: s.campaign.ID})
		}
		if err == nil || s.isEnding() && time.Since(start) > maxWrite {
			break
		}
		if !fails {
			fails = true
			logging.OutcomeUnsaved.Write(s.all.config.Logger, err, logging.Fields{logging.Campaign: s.campaign.ID})
		}
		time.Sleep(pause)
	}
	if !runs { // paused, cancelled, or its canary is out: what was not begun goes back
		s.cancel()
	}
	settled := make(map[*batch]int)
	for _, n := range some {
		settled[n.of]++
	}
	for b, n := range settled {
		b.settled(n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inHand -= len(some); s.inHand == 0 {
		signal(s.idle)
	}
}

// change is what happens to rows of one claim in one statement.
type change struct {
	token   string
	outcome outcome
}

// settleIn reports whether the campaign runs still. With the last of what was noted it pauses a campaign whose target
// is down.
func (s *settler) settleIn(ctx context.Context, tx *sql.Tx, some []noted, last bool) (runs bool, err error) {
	id, down := s.all.db.Text(s.campaign.ID), s.target.isDown()
	counts := make(map[outcome]int)
	same := make(map[change][]int64) // those without a text or a rest of their own
	for _, n := range some {
		r, token := n.result, n.of.claim.token
		if down != nil {
			r.rest, r.tries = 0, r.row.tries // the target's fault, not the letter's
		}
		switch {
		case r.outcome == back && (r.rest > 0 || r.tries > r.row.tries):
			_, err = s.all.exec(ctx, tx, `UPDATE spillway_campaign_letters SET token = '', leased_until = now_us() + ?, tries = ?
WHERE `+ofCampaign+` AND claim = ? AND token = ?`, r.rest.Microseconds(), max(r.tries, r.row.tries), id, r.seq, s.all.db.Text(token))
		case r.why != "":
			var changed int
			changed, err = s.all.exec(ctx, tx, `UPDATE spillway_campaign_letters SET state = ?, why = ?, claim = NULL, token = '', done_at = now_us()
WHERE `+ofCampaign+` AND claim = ? AND token = ?`, s.all.db.Text(string(r.outcome)), s.all.db.Text(r.why), id, r.seq, s.all.db.Text(token))
			counts[r.outcome] += changed
		default:
			to := change{token, r.outcome}
			same[to] = append(same[to], r.seq)
		}
		if err != nil {
			return false, err
		}
	}
	for to, seqs := range same {
		n, err := s.change(ctx, tx, to, seqs)
		if err != nil {
			return false, err
		}
		counts[to.outcome] += n
	}
	if !last { // not all is counted
		down = nil
	}
	return s.count(ctx, tx, counts, down)
}

// change settles rows of one claim that have the same outcome, and returns how many there were.
func (s *settler) change(ctx context.Context, tx *sql.Tx, to change, seqs []int64) (changed int, err error) {
	set := `state = ?, claim = NULL, token = '', done_at = now_us()`
	args := []any{s.all.db.Text(string(to.outcome)), s.all.db.Text(s.campaign.ID), s.all.db.Text(to.token)}
	if to.outcome == back {
		set, args = `token = '', leased_until = 0`, args[1:]
	}
	for len(seqs) > 0 {
		some := seqs[:min(len(seqs), settledAtOnce)]
		seqs = seqs[len(some):]
		claimed, of := s.all.claimed(some)
		n, err := s.all.exec(ctx, tx,
			`UPDATE spillway_campaign_letters SET `+set+` WHERE `+ofCampaign+` AND token = ?`+claimed,
			append(args[:len(args):len(args)], of...)...)
		if err != nil {
			return changed, err
		}
		changed += n
	}
	return changed, nil
}

// count adds to the counts of the campaign, and pauses it if its canary is out or its target is down. It reports
// whether the campaign runs still.
func (s *settler) count(ctx context.Context, tx *sql.Tx, counts map[outcome]int, down error) (runs bool, err error) {
	id := s.campaign.ID
	_, err = s.all.exec(ctx, tx, `UPDATE spillway_campaigns SET redriven = redriven + ?, quarantined = quarantined + ?, refused = refused + ?,
	failed = failed + ?, gone = gone + ? WHERE id = ?`,
		counts[redriven], counts[quarantined], counts[refused], counts[failed], counts[gone], s.all.db.Text(id))
	if err == nil && s.campaign.Request.Canary > 0 {
		_, err = s.all.step(ctx, tx, id,
			move{from: []State{Running}, to: Canary, what: inside.CampaignCanaryPublished,
				act:     Act{By: ByItself, Reason: "waits for what becomes of the canary"},
				details: fmt.Sprintf("%d letters", s.campaign.Request.Canary), set: `canary_at = now_us(),`,
				only: ` AND canary > 0 AND redriven >= canary`})
	}
	if err == nil && down != nil {
		err = s.pauseDown(ctx, tx, down)
	}
	if err == nil {
		err = s.all.within(ctx, tx, func(rows *sql.Rows) error { runs = true; return nil },
			`SELECT id FROM spillway_campaigns WHERE id = ? AND state = 'running'`, s.all.db.Text(id))
	}
	return runs, err
}

// pauseDown pauses the campaign because its target refuses. The first worker to notice it does so.
func (s *settler) pauseDown(ctx context.Context, tx *sql.Tx, down error) error {
	act := Act{By: ByItself, Reason: down.Error()}
	after := s.campaign.Request.ResumeAfter
	if after == 0 {
		_, err := s.all.pause(ctx, tx, s.campaign.ID, act, "")
		return err
	}
	// Doubled with each such pause, at most tenfold. Only another letter that is redriven begins anew.
	_, err := s.all.pause(ctx, tx, s.campaign.ID, act,
		`resume_at = now_us() + ? * CASE WHEN pauses > 3 THEN 10 WHEN pauses = 3 THEN 8 WHEN pauses = 2 THEN 4 WHEN pauses = 1 THEN 2 ELSE 1 END, pauses = pauses + 1,`,
		after.Microseconds())
	return err
}

// maxMarks is how many letters are marked in one transaction.
const maxMarks = 256

// marking is a letter that is to be marked. It has a place in flight.unmarked.
type marking struct {
	piece   piece
	status  letters.Status
	outcome outcome
}

// mark writes down what became of letters, with the leases that prove it, those that came in the meantime together. It
// ends when flight.marks is closed and empty.
func (f *flight) mark() {
	var kept *marking // of another status than those before it
	for {
		first, open := marking{}, true
		if kept != nil {
			first, kept = *kept, nil
		} else if first, open = <-f.marks; !open {
			return
		}
		some := []marking{first}
		for kept == nil && len(some) < maxMarks {
			m, more := marking{}, false
			select {
			case m, more = <-f.marks:
			default:
			}
			if !more {
				break
			}
			if m.status != first.status {
				kept = &m
			} else {
				some = append(some, m)
			}
		}
		f.markAll(first.status, some)
	}
}

// markAll marks letters in one transaction. It tries for as long as it takes: what is published must be marked, and
// meanwhile no more than Unmarked letters are published. It gives letters up whose leases are lost. After the end of
// the worker it tries for maxWrite.
func (f *flight) markAll(status letters.Status, some []marking) {
	act := f.act()
	if status == letters.StatusQuarantined {
		act.Reason = classify.ReasonMaxRedrives
	}
	began, edited := time.Now(), status == letters.StatusRedriven && f.campaign.Request.Edit != nil
	for pause := firstPause; len(some) > 0; pause = min(2*pause, maxPause) {
		ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
		var is map[int64]bool
		var err error
		if edited { // before the mark, so that the record has the edit before the redrive
			err = f.recordEdits(ctx, act, some)
			edited = err != nil
		}
		if err == nil {
			is, err = f.settleLetters(ctx, status, act, some)
		}
		cancel()
		if err == nil {
			if f.markFails {
				f.markFails = false
				logging.LettersMarked.Write(f.all.config.Logger, nil, logging.Fields{logging.Campaign: f.campaign.ID})
			}
			for _, m := range some {
				f.marked(m, is[m.piece.row.seq])
			}
			return
		}
		if !f.markFails {
			f.markFails = true
			logging.LettersUnmarked.Write(f.all.config.Logger, err,
				logging.Fields{logging.Campaign: f.campaign.ID, logging.Letters: len(some)})
		}
		time.Sleep(pause)
		over := f.settler.isEnding() && time.Since(began) > maxWrite
		left := some[:0]
		for _, m := range some {
			if over || m.piece.batch.isLost(m.piece.row.seq) { // the next one to take it publishes it again, if it was not marked after all
				f.over(m.piece, result{row: m.piece.row})
			} else {
				left = append(left, m)
			}
		}
		some = left
	}
}

// settleLetters marks letters, of whatever leases, in one transaction. It returns those that were marked.
func (f *flight) settleLetters(ctx context.Context, status letters.Status, act letters.Act,
	some []marking) (map[int64]bool, error) {
	of := make(map[*batch][]*letters.Letter)
	for _, m := range some {
		of[m.piece.batch] = append(of[m.piece.batch], m.piece.letter)
	}
	claims := make([]inside.Claim[letters.Letter], 0, len(of))
	for b, letters := range of {
		claims = append(claims, b.lease.Of(letters...))
	}
	marked, err := hidden.Of(f.all.store).Settle(ctx, status, act, claims...)
	is := make(map[int64]bool, len(marked))
	for _, seq := range marked {
		is[seq] = true
	}
	return is, err
}

// recordEdits records that letters were published with changes.
func (f *flight) recordEdits(ctx context.Context, act letters.Act, some []marking) error {
	seqs := make([]int64, len(some))
	for i, m := range some {
		seqs[i] = m.piece.row.seq
	}
	act.Detail = inside.EditText(f.campaign.Request.Edit)
	_, err := hidden.Of(f.all.store).Record(ctx, nil, string(letters.EventEdited), act, seqs...)
	return err
}

// marked notes what became of a letter. A letter that was published and could not be marked is another's now.
func (f *flight) marked(m marking, is bool) {
	r := result{row: m.piece.row}
	if is || m.outcome == redriven {
		r.outcome = m.outcome
	}
	f.over(m.piece, r)
}

// over notes a result, and gives the letter's place to another.
func (f *flight) over(p piece, r result) {
	p.batch.through(p.row.seq)
	f.settler.note(p.batch, r)
	<-f.unmarked
}
