package campaigns

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	firstPause = 50 * time.Millisecond // after an error of the database; it doubles
	maxPause   = 5 * time.Second
	leastBatch = 50 // letters that are claimed together, however slow they are
)

// flight is the work of a worker on one campaign: a row of hands. One fetches letters ahead, one gives each letter its
// turn, Request.Concurrency publish, one marks what was published, and one writes down what became of the letters of
// the campaign.
type flight struct {
	all       *Campaigns
	publisher message.Publisher
	config    WorkerConfig
	campaign  Campaign
	fresh     bool               // this worker did not work on it before
	stands    atomic.Bool        // nothing is in hand, and no letter is due
	cancel    context.CancelFunc // no more letters are begun
	// unmarked has a place for each letter that may be published and not marked.
	unmarked  chan struct{}
	marks     chan marking // never full: each marking has a place
	markFails bool         // since the last marks; of the hand that marks alone
	settler   *settler
	target    *target
	speed     speed
}

// piece is a letter on its way.
type piece struct {
	batch  *batch
	row    row
	letter *letters.Letter
}

func (w *Worker) newFlight(c Campaign, fresh bool) *flight {
	places := inside.Places(c.Request.Concurrency, w.config.unmarked)
	target := &target{refused: make(map[int64]bool), accepts: c.Redriven > 0}
	return &flight{all: w.all, publisher: w.publisher, config: w.config, campaign: c, fresh: fresh, target: target,
		unmarked: make(chan struct{}, places), marks: make(chan marking, places), settler: newSettler(w.all, c, target)}
}

// run works on a campaign until it does not run any more, or ctx ends. It returns when the publisher has returned and
// what became of the letters is written down. Letters that were not begun when ctx ended are released.
func (f *flight) run(parent context.Context) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	f.cancel, f.settler.cancel = cancel, cancel
	batches, next := make(chan *batch), make(chan piece)
	var fetching, publishing, marking, settling sync.WaitGroup
	fetching.Go(func() { defer close(batches); f.fetch(ctx, batches) })
	for range f.campaign.Request.Concurrency {
		publishing.Go(func() {
			for p := range next {
				f.one(ctx, p)
			}
		})
	}
	marking.Go(f.mark)
	settling.Go(f.settler.run)
	turns := &turns{}
	for b := range batches {
		began := time.Now()
		f.hand(ctx, b, turns, next)
		f.speed.handed(len(b.claim.rows), time.Since(began))
	}
	close(next)
	publishing.Wait()
	close(f.marks)
	marking.Wait()
	f.settler.end()
	settling.Wait()
	fetching.Wait()
}

// fetch claims and leases the next letters while the ones before are published.
func (f *flight) fetch(ctx context.Context, to chan<- *batch) {
	pause, fails := firstPause, false
	for fresh := f.fresh; ctx.Err() == nil; fresh = false {
		k, err := f.claim(ctx, f.speed.most(f.config.batch), fresh)
		var b *batch
		if err == nil && len(k.rows) > 0 {
			f.settler.claimed(len(k.rows))
			b, err = f.lease(ctx, k)
		}
		if err == nil && fails {
			fails = false
			logging.CampaignGoesOn.Write(f.all.config.Logger, nil, logging.Fields{logging.Campaign: f.campaign.ID})
		}
		switch {
		case err != nil:
			if ctx.Err() != nil {
				return
			}
			if !fails {
				fails = true
				logging.CampaignStands.Write(f.all.config.Logger, err, logging.Fields{logging.Campaign: f.campaign.ID})
			}
			wait.For(ctx, pause)
			pause = min(2*pause, maxPause)
			continue
		case k.stopped:
			return
		case b == nil:
			f.stands.Store(!f.settler.hasInHand())
			f.settler.wait(ctx, k)
			f.stands.Store(false)
			continue
		}
		pause = firstPause
		select {
		case to <- b:
		case <-ctx.Done():
			f.giveBack(b, b.claim.rows)
			return
		}
	}
}

// hand gives each letter its turn, and waits until there is a place for it among those that are not marked.
func (f *flight) hand(ctx context.Context, b *batch, turns *turns, next chan<- piece) {
	for i, r := range b.claim.rows {
		l, is := b.letters[r.seq]
		if !is {
			continue
		}
		if !turns.wait(ctx, b.claim.due(i), b.claim.turns.spacing) || !f.place(ctx) {
			f.giveBack(b, b.claim.rows[i:])
			return
		}
		select {
		case next <- piece{b, r, l}:
		case <-ctx.Done():
			<-f.unmarked
			f.giveBack(b, b.claim.rows[i:])
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

// giveBack lets others have letters that were not begun.
func (f *flight) giveBack(b *batch, rows []row) {
	var some []*letters.Letter
	var back []result
	for _, r := range rows {
		if l, is := b.letters[r.seq]; is {
			some, back = append(some, l), append(back, result{row: r})
			b.through(r.seq)
		}
	}
	f.returnTurns(&b.claim, len(rows))
	f.release(b, some...)
	f.settler.note(b, back...)
}

func (f *flight) release(b *batch, some ...*letters.Letter) {
	ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
	defer cancel()
	if err := f.all.store.Inside().Release(ctx, b.lease.Of(some...)); err != nil {
		logging.LettersNotReleased.Write(f.all.config.Logger, err, logging.Fields{logging.Campaign: f.campaign.ID})
	}
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
