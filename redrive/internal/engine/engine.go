// Package engine brings letters of a Store back, for a drain and for a campaign: it publishes letters that were claimed,
// and has what became of them written down, those that came in the meantime together.
package engine

import (
	"context"
	"sync"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// MaxUnmarked is the number of letters that may be published and not yet marked, beside those that are being published.
// It bounds what a kill costs.
const MaxUnmarked = 256

// settledAtOnce is how many letters one transaction settles.
const settledAtOnce = 256

// Batch is letters that were claimed together.
type Batch struct {
	*Lease
	// Tries is how often each of the Letters was refused before. Default: none was.
	Tries []int
	// Turn waits for the turn of a letter, by its place in the batch, and reports whether ctx lasted. Default: none waits.
	Turn func(ctx context.Context, place int) bool
	// Requeued is called with the number of letters at the end of the batch that were not begun. Default: nothing.
	Requeued func(n int)
}

// Piece is a letter on its way.
type Piece struct {
	Batch  *Batch
	Letter *letters.Letter
	Tries  int
}

// Result is what became of a letter. The zero value is a letter that was not begun.
type Result interface {
	// Status is what the letter is marked with. It is empty if the letter keeps what it has.
	Status() letters.Status
}

// Settled is a letter of which it is known what became of it.
type Settled[R Result] struct {
	Piece
	Result R
	Begun  bool
}

// Engine is one run: a row of hands. One fetches letters ahead, one gives each letter its turn, Concurrency publish, and
// one writes down what became of the letters.
type Engine[R Result] struct {
	Concurrency int
	// Unmarked is MaxUnmarked; only tests have another.
	Unmarked int
	// Fetch claims letters and calls Offer with them, until it returns.
	Fetch func(ctx context.Context)
	// Publish publishes a letter, if it may be.
	Publish func(ctx context.Context, p Piece) R
	// Interrupted is what becomes of a letter whose publisher ended its goroutine. It must end ctx.
	Interrupted func(p Piece) R
	// Settle writes down what became of letters that come to the same Status, at most 256. Meanwhile no more letters than
	// have places are published.
	Settle func(some []Settled[R])
	// Idle gets a signal if no letter is in hand any more.
	Idle chan struct{}

	batches chan *Batch
	// unmarked has a place for each letter that may be published and not marked.
	unmarked chan struct{}
	wake     chan struct{} // there is something to settle

	mu     sync.Mutex // guards what follows
	noted  []Settled[R]
	inHand map[int64]bool // letters that are not settled, by Seq
	ending bool
}

// Run returns when Fetch and all calls of Publish have returned, and what became of the letters is settled. Letters that
// were not begun when ctx ended are settled at once.
func (e *Engine[R]) Run(ctx context.Context) {
	places := 1 // one at a time means that each is marked before the next one is published
	if e.Concurrency > 1 {
		places = e.Concurrency + e.Unmarked
	}
	e.batches, e.unmarked, e.inHand = make(chan *Batch), make(chan struct{}, places), make(map[int64]bool)
	e.wake, e.Idle = make(chan struct{}, 1), make(chan struct{}, 1)
	next := make(chan Piece)
	var fetching, publishing, settling sync.WaitGroup
	fetching.Go(func() { defer close(e.batches); e.Fetch(ctx) })
	for range e.Concurrency {
		publishing.Go(func() {
			for p := range next {
				e.publish(ctx, p)
			}
		})
	}
	settling.Go(e.settle)
	for b := range e.batches {
		e.hand(ctx, b, next)
	}
	close(next)
	publishing.Wait()
	fetching.Wait()
	e.note(true)
	settling.Wait()
}

// Offer hands a batch over, or requeues it if ctx ends.
func (e *Engine[R]) Offer(ctx context.Context, b *Batch) {
	e.mu.Lock()
	for _, l := range b.Letters {
		e.inHand[l.Seq] = true
	}
	e.mu.Unlock()
	select {
	case e.batches <- b:
	case <-ctx.Done():
		e.requeue(b, 0)
	}
}

// Has reports whether a letter is in hand, if its lease was lost too.
func (e *Engine[R]) Has(seq int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inHand[seq]
}

// Ending reports whether nothing more will be published.
func (e *Engine[R]) Ending() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ending
}

// hand gives each letter its turn, and waits until there is a place for it among those that are not marked.
func (e *Engine[R]) hand(ctx context.Context, b *Batch, next chan<- Piece) {
	for i := range b.Letters {
		if b.Turn != nil && !b.Turn(ctx, i) || ctx.Err() != nil {
			e.requeue(b, i)
			return
		}
		select {
		case e.unmarked <- struct{}{}:
		case <-ctx.Done():
			e.requeue(b, i)
			return
		}
		select {
		case next <- b.piece(i):
		case <-ctx.Done():
			<-e.unmarked
			e.requeue(b, i)
			return
		}
	}
}

func (b *Batch) piece(i int) Piece {
	p := Piece{Batch: b, Letter: b.Letters[i]}
	if b.Tries != nil {
		p.Tries = b.Tries[i]
	}
	return p
}

// requeue lets others have letters that were not begun.
func (e *Engine[R]) requeue(b *Batch, from int) {
	if b.Requeued != nil {
		b.Requeued(len(b.Letters) - from)
	}
	var back []Settled[R]
	for i := from; i < len(b.Letters); i++ {
		back = append(back, Settled[R]{Piece: b.piece(i)})
	}
	e.note(false, back...)
}

// publish publishes a letter, which has a place.
func (e *Engine[R]) publish(ctx context.Context, p Piece) {
	s, returned := Settled[R]{Piece: p, Begun: true}, false
	defer func() {
		if !returned { // the goroutine is lost, the letter is not
			s.Result = e.Interrupted(p)
		}
		e.note(false, s)
	}()
	s.Result = e.Publish(ctx, p)
	returned = true
}

// note takes what became of letters, each of which is noted once, and whether these are the last.
func (e *Engine[R]) note(last bool, some ...Settled[R]) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noted, e.ending = append(e.noted, some...), e.ending || last
	signal(e.wake)
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// settle settles until nothing more comes.
func (e *Engine[R]) settle() {
	for {
		some, over := e.same()
		switch {
		case len(some) > 0:
			e.Settle(some)
			e.done(some)
		case over:
			return
		default:
			<-e.wake
		}
	}
}

// same returns letters that come to the same.
func (e *Engine[R]) same() (some []Settled[R], over bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var rest []Settled[R]
	for _, n := range e.noted {
		if len(some) == settledAtOnce || len(some) > 0 && n.Result.Status() != some[0].Result.Status() {
			rest = append(rest, n)
		} else {
			some = append(some, n)
		}
	}
	e.noted = rest
	return some, e.ending
}

func (e *Engine[R]) done(some []Settled[R]) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range some {
		delete(e.inHand, n.Letter.Seq)
		n.Batch.Done(n.Letter)
		if n.Begun {
			<-e.unmarked
		}
	}
	if len(e.inHand) == 0 {
		signal(e.Idle)
	}
}

// Claims are letters under their leases.
func Claims[R Result](some []Settled[R]) (claims []inside.Claim[letters.Letter]) {
	of := make(map[*Batch][]*letters.Letter)
	for _, n := range some {
		of[n.Batch] = append(of[n.Batch], n.Letter)
	}
	for b, letters := range of {
		claims = append(claims, b.Of(letters...))
	}
	return claims
}
