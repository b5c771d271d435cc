// Package batcher lets callers that write at the same time share one statement.
//
// A call that is alone writes at once, with its own context, in its own goroutine: no wait is added. Calls that come
// while another one writes wait for it, and then go together. So the size of a batch follows from how busy the database
// is, and no time has to be chosen.
//
// If a batch fails, or panics, nothing of it is written, and each of its calls writes for itself, with its own context:
// one bad row does not fail the others, and each caller gets its own error.
//
// The caller keeps out what must not be batched: a write within a transaction of the caller's.
package batcher

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Config says what calls share.
type Config[T any] struct {
	// Together writes several items. It returns the indexes of those that it left out: their calls write alone. After
	// an error all calls do, so it has written all or none. Its context ends after Timeout.
	Together func(ctx context.Context, items []T) (leftOut []int, err error)
	// Rows and Bytes bound a batch. An item of more than a quarter of Bytes is written at once, and alone.
	Rows, Bytes int
	// Lanes is the number of writes that run at the same time before calls are batched.
	Lanes int
	// Timeout bounds Together.
	Timeout time.Duration
}

// Batcher writes what several callers have at the same time in one batch. It is safe for concurrent use, and has a
// goroutine only while a batch is written.
type Batcher[T any] struct {
	config Config[T]

	mu      sync.Mutex
	running int
	waiting []*call[T] // not empty only while all lanes run
}

// Lanes returns how many writes of a process shall run at the same time: one on a database with a single writer. A
// server commits the writes of several connections together: with two lanes, 16 callers were slower there than alone.
func Lanes(singleWriter bool) int {
	if singleWriter {
		return 1
	}
	return 16
}

// New returns a Batcher.
func New[T any](config Config[T]) *Batcher[T] { return &Batcher[T]{config: config} }

// call is an item that waits.
type call[T any] struct {
	item   T
	size   int
	answer chan answer // has room for the one that comes
}

type answer int

const (
	done  answer = iota // the batch is written
	alone               // the call is to write by itself
	lead                // the same, and then to pass its lane on
)

// Do writes an item of size bytes: alone calls the write of this item alone, in this goroutine. If others are writing,
// the item goes into the next batch. Do returns the error of ctx when ctx ends first; the item may be written then.
func (g *Batcher[T]) Do(ctx context.Context, item T, size int, write func() error) error {
	if size > g.config.Bytes/4 {
		return write()
	}
	g.mu.Lock()
	if g.running < g.config.Lanes {
		g.running++
		g.mu.Unlock()
		defer g.next()
		return write()
	}
	c := &call[T]{item: item, size: size, answer: make(chan answer, 1)}
	g.waiting = append(g.waiting, c)
	g.mu.Unlock()
	select {
	case a := <-c.answer:
		return g.obey(a, write)
	case <-ctx.Done():
		if a, answered := g.leave(c); answered {
			return g.obey(a, write)
		}
		return ctx.Err()
	}
}

func (g *Batcher[T]) obey(a answer, write func() error) error {
	switch a {
	case done:
		return nil
	case lead:
		defer g.next()
	}
	return write()
}

// leave takes a call back whose context ended, unless it has its answer.
func (g *Batcher[T]) leave(c *call[T]) (a answer, answered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case a := <-c.answer:
		return a, true
	default:
	}
	if i := slices.Index(g.waiting, c); i >= 0 { // else it is in a batch
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return 0, false
}

// next passes a lane on to those that wait.
func (g *Batcher[T]) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, size := 0, 0
	for n < len(g.waiting) && n < g.config.Rows && (n == 0 || size+g.waiting[n].size <= g.config.Bytes) {
		size += g.waiting[n].size
		n++
	}
	if n == 0 {
		g.running--
		return
	}
	calls := append([]*call[T](nil), g.waiting[:n]...)
	clear(g.waiting[:n])
	if g.waiting = g.waiting[n:]; len(g.waiting) == 0 {
		g.waiting = nil // the array goes with its calls
	}
	if n == 1 {
		calls[0].answer <- lead
		return
	}
	go g.write(calls)
}

// write writes a batch and answers its calls.
func (g *Batcher[T]) write(calls []*call[T]) {
	ctx, cancel := context.WithTimeout(context.Background(), g.config.Timeout)
	defer cancel()
	answers := make([]answer, len(calls))
	for i := range answers {
		answers[i] = alone
	}
	defer func() {
		_ = recover() // each call meets it again in its own goroutine
		g.mu.Lock()
		for i, c := range calls {
			c.answer <- answers[i]
		}
		g.mu.Unlock()
		g.next()
	}()
	items := make([]T, len(calls))
	for i, c := range calls {
		items[i] = c.item
	}
	leftOut, err := g.config.Together(ctx, items)
	if err != nil {
		return
	}
	clear(answers) // done
	for _, i := range leftOut {
		answers[i] = alone
	}
}
