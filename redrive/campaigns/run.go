package campaigns

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	firstPause = 50 * time.Millisecond // after an error of the database; it doubles
	maxPause   = 5 * time.Second
	leastBatch = 50 // letters that are claimed together, however slow they are
)

// flight is the work of a worker on one campaign: a row of hands. One fetches letters ahead, one gives each letter its
// turn, Request.Concurrency publish, and one writes down what became of the letters.
type flight struct {
	all       *Campaigns
	publisher message.Publisher
	config    WorkerConfig
	campaign  Campaign
	fresh     bool // this worker did not work on it before
	slots     *slots
	since     time.Time
	cancel    context.CancelFunc // no more letters are begun
	// unmarked has a place for each letter that may be published and not marked.
	unmarked chan struct{}
	settler  *settler
	target   *target
	speed    speed
}

// piece is a letter on its way.
type piece struct {
	batch  *batch
	letter *letters.Letter
	tries  int
}

func (w *Worker) newFlight(c Campaign, fresh bool) *flight {
	places := inside.Places(c.Request.Concurrency, w.config.unmarked)
	f := &flight{all: w.all, publisher: w.publisher, config: w.config, campaign: c, fresh: fresh,
		target:   &target{refused: make(map[int64]bool), accepts: c.Redriven > 0},
		unmarked: make(chan struct{}, places)}
	f.settler = &settler{flight: f, inHand: make(map[int64]bool), wake: make(chan struct{}, 1), idle: make(chan struct{}, 1)}
	return f
}

// run works on a campaign until it does not run any more, or ctx ends. It returns when the publisher has returned and
// what became of the letters is written down. Letters that were not begun when ctx ended are released.
func (f *flight) run(ctx context.Context) {
	batches, next := make(chan *batch), make(chan piece)
	var fetching, publishing, settling sync.WaitGroup
	fetching.Go(func() { defer close(batches); f.fetch(ctx, batches) })
	for range f.campaign.Request.Concurrency {
		publishing.Go(func() {
			for p := range next {
				f.one(ctx, p)
			}
		})
	}
	settling.Go(f.settler.run)
	turns := &turns{}
	for b := range batches {
		began := time.Now()
		f.hand(ctx, b, turns, next)
		f.speed.handed(len(b.rows), time.Since(began))
	}
	close(next)
	publishing.Wait()
	fetching.Wait()
	f.settler.end()
	settling.Wait()
	f.settler.pauseDown()
}

// fetch claims the next letters while the ones before are published. Without a letter due it leaves its place to
// others.
func (f *flight) fetch(ctx context.Context, to chan<- *batch) {
	defer func() { <-f.slots.places }()
	pause, fails := firstPause, false
	for fresh := f.fresh; ctx.Err() == nil; fresh = false {
		k, b, err := f.take(ctx, fresh)
		if err == nil && fails {
			fails = false
			eventCampaignResumed.Write(f.all.config.Logger, nil, logging.Fields{logging.Campaign: f.campaign.ID})
		}
		switch {
		case err != nil:
			if ctx.Err() != nil {
				return
			}
			if !fails {
				fails = true
				eventCampaignStalled.Write(f.all.config.Logger, err, logging.Fields{logging.Campaign: f.campaign.ID})
			}
			timing.Wait(ctx, pause)
			pause = min(2*pause, maxPause)
			continue
		case k.stopped:
			return
		case b == nil:
			if k.pause > 0 && f.slots.others.Load() {
				return
			}
			timer := time.NewTimer(k.pause)
			select {
			case <-timer.C:
			case <-f.settler.idle:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		pause = firstPause
		select {
		case to <- b:
		case <-ctx.Done():
			f.requeue(b, b.rows)
			return
		}
	}
}

// hand gives each letter its turn, and waits until there is a place for it among those that are not marked.
func (f *flight) hand(ctx context.Context, b *batch, turns *turns, next chan<- piece) {
	for i, r := range b.rows {
		l, is := b.letters[r.seq]
		if !is {
			continue
		}
		if !turns.wait(ctx, b.due(i), b.turns.spacing) || !f.place(ctx) {
			f.requeue(b, b.rows[i:])
			return
		}
		select {
		case next <- piece{b, l, r.tries}:
		case <-ctx.Done():
			<-f.unmarked
			f.requeue(b, b.rows[i:])
			return
		}
	}
}

func (f *flight) place(ctx context.Context) bool {
	select {
	case f.unmarked <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// requeue lets others have letters that were not begun.
func (f *flight) requeue(b *batch, rows []row) {
	f.returnTurns(&b.claim, len(rows))
	var back []settled
	for _, r := range rows {
		if l, is := b.letters[r.seq]; is {
			back = append(back, settled{piece: piece{batch: b, letter: l}})
		}
	}
	f.settler.note(back...)
}

// speed is how fast letters go, which says how many to have in hand.
type speed struct {
	mu        sync.Mutex
	perSecond float64
}

// handed notes how long the letters of a batch took. A batch of a moment says little.
func (s *speed) handed(n int, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.perSecond = float64(n) / max(took, time.Millisecond).Seconds()
}

// most is how many letters to take: those of half a second, and not too few for a transaction.
func (s *speed) most(batch int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(batch, max(leastBatch, int(s.perSecond/2)))
}

const (
	// faster is how much faster than its rate a campaign goes until it has made up for a time in which it stood still.
	faster = 1.1
	// maxLate is the longest such time that is made up for.
	maxLate = 10 * time.Second
	// atOnce is how late a worker may be and still publish what is due at once: timers are late by less.
	atOnce = 20 * time.Millisecond
)

// schedule is when the next letter of a campaign is due, as the row of the campaign keeps it, in microseconds.
type schedule struct {
	next int64 // when the next letter may be published
	late int64 // time to make up for
}

// claimedTurns are turns for letters that were claimed.
type claimedTurns struct {
	first   time.Duration // from now
	quick   int           // letters that come faster than the rate
	spacing time.Duration // of those
	every   time.Duration // of the others
}

// take gives n letters their turns at a rate in letters per 1,000 seconds. The turns of all workers follow one another.
// A time in which the schedule stood still is made up for by turns that follow each other faster, unless it was asked
// for by a fresh worker: before that, no worker may have been there.
func (s schedule) take(now int64, n int, rate int64, fresh bool) (claimedTurns, schedule) {
	every := 1e12 / float64(rate) // nanoseconds
	spacing := every / faster
	if stood := now - s.next; stood > 0 {
		if !fresh {
			s.late = min(s.late+stood, maxLate.Microseconds())
		}
		s.next = now
	}
	t := claimedTurns{first: time.Duration(s.next-now) * time.Microsecond, spacing: time.Duration(spacing),
		every: time.Duration(every)}
	gain := (every - spacing) / 1000 // microseconds that each quick letter makes up for
	t.quick = min(n, int(float64(s.late)/gain))
	s.late -= int64(math.Round(float64(t.quick) * gain))
	s.next += int64(math.Round((float64(t.quick)*spacing + float64(n-t.quick)*every) / 1000))
	return t, s
}

// due is when the letter at a place is due, from the time of the claim.
func (t *claimedTurns) due(i int) time.Duration {
	quick := min(i, t.quick)
	return t.first + time.Duration(quick)*t.spacing + time.Duration(i-quick)*t.every
}

// turns gives the letters of one worker their turns, one after the other.
type turns struct{ last time.Time }

// wait waits until a letter may be published, and reports whether ctx lasted. A zero due is no rate.
func (t *turns) wait(ctx context.Context, due time.Time, spacing time.Duration) bool {
	if due.IsZero() {
		return ctx.Err() == nil
	}
	t.last = t.turn(time.Now(), due, spacing)
	return timing.Wait(ctx, time.Until(t.last))
}

// turn is when a letter that is due may be published: after the one before it, by the shortest spacing, so that a
// worker that stood still publishes no burst. What is late by atOnce at most is published at once.
func (t *turns) turn(now, due time.Time, spacing time.Duration) time.Time {
	turn := t.last.Add(spacing)
	if floor := now.Add(-atOnce); turn.Before(floor) {
		turn = floor
	}
	if turn.Before(due) {
		turn = due
	}
	return turn
}
