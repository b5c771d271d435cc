package sequence

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

// Owner is what the process that has a source knows of its parked sequences. It is made anew with each session.
type Owner struct {
	*Ordering
	store *Store
	of    Source
	hash  string

	count atomic.Int64 // of lanes, so that a message costs no lock while there are none
	// A method whose name ends with Locked is called with mu held, and locks nothing. The others lock it, and call none
	// of each other meanwhile.
	mu    sync.Mutex
	lanes map[string]*Lane
	due   byDue
	looks int // by Load
	wake  chan struct{}
	total load
	room  chan struct{} // has an item if a row is gone since

	looked time.Time // for decisions

	// Late is for StandBy. Set it before anything else.
	Late time.Duration
}

// Lane is a sequence with parked messages.
type Lane struct {
	Key   []byte // what stands for the key
	due   time.Time
	index int // in due, or -1 while it is being drained
	load
}

// Own returns the Owner of a source. Load it before the first message is handed on.
func (o *Ordering) Own(of Source) *Owner {
	return &Owner{Ordering: o, store: o.Store, of: of, hash: of.hash(o.Store.service), lanes: make(map[string]*Lane),
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// Load looks for what is parked. It is called when the position of the source was read, and may be called again. While
// the database is away it waits, and reports false if ctx ends before.
func (o *Owner) Load(ctx context.Context) bool {
	o.mu.Lock()
	o.looks++ // before the look: a lane that is found empty before it is not left after it
	o.mu.Unlock()
	var all []Waiting
	if !o.insist(ctx, func() (err error) {
		all, err = o.store.Load(ctx, o.of)
		return err
	}) {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range all {
		known := load{}
		if l := o.lanes[string(w.Lane)]; l != nil {
			known = l.load
		}
		o.noteLocked(w.Lane, w.Due, load{w.messages - known.messages, w.bytes - known.bytes})
	}
	return true
}

// Waits reports whether messages of the lane are parked, so that another one goes behind them.
func (o *Owner) Waits(lane []byte) bool {
	if lane == nil || o.count.Load() == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lanes[string(lane)] != nil
}

// parked notes that the lane has rows.
func (o *Owner) parked(lane []byte, due time.Time, rows load) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.noteLocked(lane, due, rows)
}

func (o *Owner) noteLocked(lane []byte, due time.Time, rows load) {
	l := o.lanes[string(lane)]
	if l == nil {
		l = &Lane{Key: lane, index: -1}
		o.lanes[string(lane)] = l
		o.count.Add(1)
		o.laterLocked(l, due)
	}
	o.addLocked(l, rows)
}

func (o *Owner) laterLocked(l *Lane, due time.Time) {
	l.due = due
	heap.Push(&o.due, l)
	if l.index == 0 {
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
}

// Next waits until a lane is due, which is then the caller's until Later or Drain. It returns nil if ctx ends.
// Meanwhile it looks for what people decide.
func (o *Owner) Next(ctx context.Context) *Lane {
	for ctx.Err() == nil {
		o.lookForDecisions(ctx)
		l, pause := o.Due()
		if l != nil {
			return l
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-o.wake:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// Due is Next without a wait: it returns a lane that is due, or nil and how long there may be none.
func (o *Owner) Due() (*Lane, time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	pause := time.Hour
	if o.count.Load() > 0 {
		pause = lookEvery
	}
	if len(o.due) > 0 {
		if pause = min(pause, time.Until(o.due[0].due)); pause <= 0 {
			return heap.Pop(&o.due).(*Lane), 0
		}
	}
	return nil, pause
}

// Later puts a lane back whose first message is due, or looked at again, at a time.
func (o *Owner) Later(l *Lane, due time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.laterLocked(l, due)
}

// headsAtOnce is how many rows of a lane are read at a time.
const headsAtOnce = 16

// Heads returns the first rows of the lane. It reports false if ctx ends before the database answers.
func (o *Owner) Heads(ctx context.Context, l *Lane) (rows []*Row, ok bool) {
	ok = o.insist(ctx, func() (err error) {
		rows, err = o.store.Heads(ctx, o.of, l.Key, headsAtOnce)
		return err
	})
	return rows, ok
}

// Delete removes the row of a message that was passed, with its outputs published. It reports false if ctx ends before
// the database answers: then the next owner absorbs the message.
func (o *Owner) Delete(ctx context.Context, row *Row) bool {
	if !o.insist(ctx, func() error { return o.store.Delete(ctx, o.of, row) }) {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.lanes[string(row.Lane)]; l != nil {
		o.addLocked(l, load{-1, -int64(row.size())})
	}
	return true
}

const firstPause, maxPause = 50 * time.Millisecond, 5 * time.Second

// insist calls try until it succeeds, or ctx ends: nothing may go on before.
func (o *Owner) insist(ctx context.Context, try func() error) bool {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		err := try()
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			logging.SequencesAway.Write(o.Logger, err, o.fields())
		}
		wait.For(ctx, pause)
	}
	return false
}

func (o *Owner) fields() logging.Fields {
	return logging.Fields{logging.Topic: o.of.Topic, logging.Partition: o.of.Partition,
		logging.ConsumerGroup: o.of.Group}
}

// byDue is a heap.
type byDue []*Lane

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h byDue) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *byDue) Push(x any) {
	l := x.(*Lane)
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *byDue) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	l.index = -1
	return l
}
