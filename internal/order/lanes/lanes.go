// Package lanes runs many messages at the same time, and never two of one key.
//
//	              ┌─ key a ─▶ a3 a2 ─▶ run(a1)
//	Add ─▶ room ──┼─ key b ─────────▶ run(b1)
//	              └─ no key ────────▶ run(x1)
//
// The messages of a key run one after the other, as they were added. The next one begins when run has returned. A key
// whose message takes long holds up its own messages alone, until there is no room: then Add waits. A message without
// a key has no order, and waits for no other.
//
// A key is kept as a hash of 64 bits, however long it is. Two keys with one hash share a lane, which costs time and no
// order. What is kept is bounded by Config.Items and Config.Bytes, however many keys there are.
//
// Package sequence says what stands on lanes.
package lanes

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ErrClosed is returned by Add after Close.
var ErrClosed = errors.New("lanes: closed")

// Config configures Lanes of messages of type T. Each field is required.
type Config[T any] struct {
	// Running is the number of messages that run at the same time.
	Running int
	// Items is the number of messages that run or wait, and Bytes is their size. As many as Running are taken in any
	// case, and none is taken while as many run.
	Items, Bytes int
	// Key returns the key of a message. nil is no key. An empty key is a key.
	Key func(T) []byte
	// Size returns what a message holds of memory.
	Size func(T) int
	// Run runs a message. Its lane goes on when it has returned.
	Run func(T)
}

// Lanes runs messages. One goroutine adds them: the messages of several would have no order. See AddBeside.
type Lanes[T any] struct {
	config  Config[T]
	seed    maphash.Seed
	room    chan struct{} // has an item if there may be room
	closing chan struct{}
	workers sync.WaitGroup

	mu           sync.Mutex
	work         sync.Cond // something is ready, or closed
	closed       bool
	idle         int // workers that wait, and have no work coming
	runnable     int // run, or are about to
	items, bytes int
	first, last  *entry[T]            // that are about to run
	ends         map[uint64]*entry[T] // the last one of each key that runs or waits
	spare        *entry[T]
	spares       int
}

// entry is a message that runs or waits.
type entry[T any] struct {
	item   T
	size   int
	lane   uint64
	keyed  bool
	behind *entry[T] // of the same key
	next   *entry[T] // of those that may run, or of the spare ones
}

// New returns Lanes that start their goroutines as they are needed, and keep them until Close.
func New[T any](config Config[T]) *Lanes[T] {
	l := &Lanes[T]{config: config, seed: maphash.MakeSeed(), room: make(chan struct{}, 1),
		closing: make(chan struct{}), ends: make(map[uint64]*entry[T])}
	l.work.L = &l.mu
	return l
}

// Add lets a message run, behind those of its key that were added before. It waits for room, until ctx ends. It returns
// an error if the message does not run: ctx has ended, the Lanes are closed, or Key panicked.
func (l *Lanes[T]) Add(ctx context.Context, item T) error {
	key, err := l.keyOf(item)
	if err != nil {
		return err
	}
	size, lane := l.config.Size(item), maphash.Bytes(l.seed, key)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if added, err := l.add(item, size, lane, key != nil); added || err != nil {
			return err
		}
		select {
		case <-l.room:
		case <-l.closing:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// AddBeside is Add for a second goroutine, whose messages have no order to those of the first.
func (l *Lanes[T]) AddBeside(ctx context.Context, item T) error {
	defer l.passOn() // it may have taken what the other one waits for
	return l.Add(ctx, item)
}

func (l *Lanes[T]) passOn() {
	select {
	case l.room <- struct{}{}:
	default:
	}
}

func (l *Lanes[T]) keyOf(item T) (key []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			key, err = nil, fmt.Errorf("lanes: Key panicked with %v: it must return the key of every message, or nil for one "+
				"without a key", r)
		}
	}()
	return l.config.Key(item), nil
}

func (l *Lanes[T]) add(item T, size int, lane uint64, keyed bool) (added bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false, ErrClosed
	}
	if !l.fits(size) {
		return false, nil
	}
	e := l.entry()
	e.item, e.size, e.lane, e.keyed = item, size, lane, keyed
	l.items++
	l.bytes += size
	if keyed {
		before := l.ends[lane]
		if l.ends[lane] = e; before != nil {
			before.behind = e
			return true, nil
		}
	}
	l.ready(e)
	return true, nil
}

func (l *Lanes[T]) fits(size int) bool {
	return l.runnable < l.config.Running && (l.items < l.config.Running ||
		l.items < l.config.Items && l.bytes+size <= l.config.Bytes)
}

// ready lets e run: there is a worker for it.
func (l *Lanes[T]) ready(e *entry[T]) {
	l.runnable++
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
	if l.idle > 0 {
		l.idle-- // here, because the worker may wake up late
		l.work.Signal()
	} else {
		l.workers.Go(l.run)
	}
}

// run is a worker.
func (l *Lanes[T]) run() {
	l.mu.Lock()
	for {
		for l.first == nil && !l.closed {
			l.idle++
			l.work.Wait()
		}
		if l.closed {
			l.mu.Unlock() // not deferred: a panic of Run, which has no lock, would be lost in that of the lock
			return
		}
		e := l.first
		if l.first = e.next; l.first == nil {
			l.last = nil
		}
		for e != nil && !l.closed {
			l.mu.Unlock()
			l.config.Run(e.item)
			l.mu.Lock()
			e = l.ended(e)
		}
	}
}

// ended makes room, and returns the next one of the key.
func (l *Lanes[T]) ended(e *entry[T]) (behind *entry[T]) {
	l.items--
	l.bytes -= e.size
	if behind = e.behind; behind == nil {
		if l.runnable--; e.keyed {
			delete(l.ends, e.lane)
		}
	}
	l.release(e)
	l.passOn()
	return behind
}

// entry returns a spare one.
func (l *Lanes[T]) entry() *entry[T] {
	e := l.spare
	if e == nil {
		return new(entry[T])
	}
	l.spare, e.next = e.next, nil
	l.spares--
	return e
}

func (l *Lanes[T]) release(e *entry[T]) {
	if *e = (entry[T]{}); l.spares < l.config.Running {
		e.next, l.spare = l.spare, e
		l.spares++
	}
}

// Close drops the messages that wait, and returns when those that run have ended.
func (l *Lanes[T]) Close() {
	l.mu.Lock()
	if !l.closed {
		close(l.closing)
	}
	l.closed, l.first, l.last, l.ends = true, nil, nil, nil
	l.work.Broadcast()
	l.mu.Unlock()
	l.workers.Wait()
}

// KeyFrom calls the function of a SubscriberConfig that returns the key of a message. A panic is an error: a message
// whose key is not known would overtake others.
func KeyFrom(of func(*message.Message) string, msg *message.Message) (key string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("SubscriberConfig.Key panicked with %v for message %q: it must return the key of every message, or \"\" "+
				"for one without a key", r, msg.UUID)
		}
	}()
	return of(msg), nil
}
