package campaigns

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/redrive/internal/engine"
)

const (
	firstPause = 50 * time.Millisecond // after an error of the database; it doubles
	maxPause   = 5 * time.Second
)

// flight is the work of a worker on one campaign.
type flight struct {
	engine    engine.Engine[result]
	all       *Campaigns
	publisher message.Publisher
	config    WorkerConfig
	campaign  Campaign
	fresh     bool // this worker did not work on it before
	slots     *slots
	since     time.Time
	cancel    context.CancelFunc // no more letters are begun
	target    *target
	turns     turns
	every     atomic.Int64 // the time between two letters at the rate, in nanoseconds
	fails     bool         // the last transaction that settled letters did
}

func (w *Worker) newFlight(c Campaign, fresh bool) *flight {
	f := &flight{all: w.all, publisher: w.publisher, config: w.config, campaign: c, fresh: fresh,
		target: &target{refused: make(map[int64]bool), accepts: c.Redriven > 0}}
	f.engine = engine.Engine[result]{Concurrency: c.Request.Concurrency, Unmarked: w.config.unmarked, Fetch: f.fetch,
		Publish: f.bring, Settle: f.settle, Interrupted: func(p engine.Piece) result {
			f.refusedBy(p, errInterrupted)
			f.cancel()
			return result{rest: f.config.Poll, tries: p.Tries + 1}
		}}
	return f
}

// run works on a campaign until it does not run any more, or ctx ends. It returns when the publisher has returned and
// what became of the letters is written down. Letters that were not begun when ctx ended are released.
func (f *flight) run(ctx context.Context) {
	f.engine.Run(ctx)
	f.pauseDown()
}

// fetch claims the next letters while the ones before are published. Without a letter due it leaves its place to
// others.
func (f *flight) fetch(ctx context.Context) {
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
			case <-f.engine.Idle:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		pause = firstPause
		f.engine.Offer(ctx, b)
	}
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
