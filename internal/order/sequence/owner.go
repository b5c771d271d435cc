package sequence

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// Owner is what the process that has a source knows of its parked sequences. It is made anew with each session.
type Owner struct {
	*Ordering
	store *Store
	of    parked.Source
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
func (o *Ordering) Own(of parked.Source) *Owner {
	return &Owner{Ordering: o, store: o.Store, of: of, hash: of.Hash(o.Store.service), lanes: make(map[string]*Lane),
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// Load looks for what is parked. It is called when the position of the source was read, and may be called again. While
// the database is unavailable it waits, and reports false if ctx ends before.
func (o *Owner) Load(ctx context.Context) bool {
	o.mu.Lock()
	o.looks++ // before the look: a lane that is found empty before it is not left after it
	o.mu.Unlock()
	return o.insist(ctx, func() error { return o.look(ctx) })
}

// look reads from the database what is parked, and how much.
func (o *Owner) look(ctx context.Context) error {
	all, err := o.store.Load(ctx, o.of)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	found := make(map[string]load, len(all))
	for _, w := range all {
		found[string(w.Lane)] = w.load
		o.noteLocked(w.Lane, w.Due, load{})
	}
	for key, l := range o.lanes {
		now := found[key]
		o.addLocked(l, load{now.messages - l.messages, now.bytes - l.bytes})
	}
	return nil
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

// noteLocked notes that the lane has rows.
func (o *Owner) noteLocked(lane []byte, due time.Time, rows load) {
	l := o.lanes[string(lane)]
	if l == nil {
		l = &Lane{Key: parked.NotNil(lane), index: -1}
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
			logging.SequencesUnavailable.Write(o.Logger, err, o.fields())
		}
		timing.Wait(ctx, pause)
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

// Limits bound what is parked. The zero value has the defaults.
type Limits struct {
	Messages, All          int   // of a key, and of a source
	MessageBytes, AllBytes int64 // payloads, ids and keys, and 1 KiB for each message
}

// defaultLimits are what a source catches up with in minutes when its handler is repaired: a new owner reads one row
// for each key, and a key is drained one message at a time. What is behind them waits where it is cheaper: in the
// broker.
var defaultLimits = Limits{Messages: 10_000, All: 100_000, MessageBytes: 256 << 20, AllBytes: 1 << 30}

// Admit waits until a further message of the lane can be parked, if that should be necessary. A subscriber calls it
// before it takes the message up, in no lane: what is parked must be drained meanwhile. The source then waits, and
// nothing is overtaken. The messages that were taken up before are parked behind the limit. It reports false if ctx
// ends.
func (o *Owner) Admit(ctx context.Context, lane []byte) bool {
	if !o.IsFull(lane) {
		return true
	}
	o.SayFull(true)
	for o.isFull(lane) {
		again := time.NewTimer(lookEvery)
		select {
		case <-o.room:
		case <-again.C: // a person or an erasure may have deleted some
			_ = o.look(ctx) // a drain says what fails
		case <-ctx.Done():
		}
		again.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
	o.SayFull(false)
	return true
}

// IsFull reports whether no further message of the lane can be parked now, for a subscriber that cannot wait in Admit.
func (o *Owner) IsFull(lane []byte) bool { return o.count.Load() > 0 && o.isFull(lane) }

// SayFull writes to the log that the source waits for room, or has it again.
func (o *Owner) SayFull(full bool) {
	event := eventSequencesHaveRoom
	if full {
		event = eventSequencesFull
	}
	event.Write(o.Logger, nil, o.fields())
}

func (o *Owner) isFull(lane []byte) bool {
	most := o.Limits
	if most == (Limits{}) {
		most = defaultLimits
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.total.messages >= most.All || o.total.bytes >= most.AllBytes {
		return true
	}
	l := o.lanes[string(lane)]
	return lane != nil && l != nil && (l.messages >= most.Messages || l.bytes >= most.MessageBytes)
}

// addLocked changes the load of a lane. A lost answer can have let a row be counted twice, until the next count.
func (o *Owner) addLocked(l *Lane, rows load) {
	before := l.load
	l.messages, l.bytes = max(0, l.messages+rows.messages), max(0, l.bytes+rows.bytes)
	o.total.messages += l.messages - before.messages
	o.total.bytes += l.bytes - before.bytes
	if rows.messages < 0 {
		select {
		case o.room <- struct{}{}:
		default:
		}
	}
}

// DrainAll calls add with each lane whose parked messages are due, until ctx ends or add returns an error. add puts the
// lane among the others of the subscriber, so that no message of its key runs beside the call of Drain.
func (o *Owner) DrainAll(ctx context.Context, add func(*Lane) error) {
	for {
		l := o.Next(ctx)
		if l == nil || add(l) != nil {
			return
		}
	}
}

// lookAgain is when a lane is looked at again whose first message is held.
const lookAgain = time.Minute

// Drain passes on the first messages that are parked in a lane, one after the other, until one must wait. Then those
// that have come from the source meanwhile are appended: they would fill the lanes otherwise.
//
// deliver delivers a message until it is acked and its chain has returned: it is passed, with its outputs published, or
// waits again. Neither is for a source that was lost meanwhile. No message begins when taking has ended. A row goes
// until work ends.
func (o *Owner) Drain(taking, work context.Context, l *Lane, deliver func(*Row) (passed, again bool)) {
	seen := o.seen()
	rows, ok := o.Heads(taking, l)
	if !ok {
		return
	}
	if len(rows) == 0 {
		o.leave(l, seen)
		return
	}
	for _, row := range rows {
		switch {
		case seen == 0 && !o.takes(taking, row): // it is another one's, as far as this process knows
			o.leave(l, seen)
			return
		case row.Held:
			o.Later(l, time.Now().Add(lookAgain))
			return
		case time.Until(row.Due) > 0:
			o.Later(l, row.Due)
			return
		case taking.Err() != nil:
			return
		}
		stop := o.atWork(work, row)
		passed, again := deliver(row)
		stop()
		switch {
		case again:
			o.Later(l, row.Due)
			return
		case !passed || !o.Delete(work, row):
			return
		}
	}
	o.Later(l, time.Now())
}

// Parked returns the delivery of a parked message, and ctx as its handler gets it. It opens the message.
func (o *Owner) Parked(ctx context.Context, row *Row) (Delivery, context.Context) {
	if stage := o.Open(row.Msg); stage > 0 {
		ctx = chain.WithReentry(ctx, &chain.Reentry{Topic: o.of.Topic, Stage: stage, Released: row.DecidedAt})
	}
	return Delivery{Owner: o, Lane: row.Lane, RecordKey: row.RecordKey, Position: row.Position, SentAt: row.SentAt,
		Row: row}, ctx
}

// StandBy drains what its owner left behind, until the source is looked at by Load, or ctx ends. It is for a process
// that does not know whether the source is its own: any process may drain, as doc.go says. So that two seldom do
// the same, it takes a lane whose first message is due for longer than Late, and who is at work on a message says so
// in that time.
func (o *Owner) StandBy(ctx context.Context) {
	for timing.Wait(ctx, o.Late/3) {
		all, err := o.store.late(ctx, o.of, o.Late)
		if err != nil && ctx.Err() == nil {
			logging.SequencesUnavailable.Write(o.Logger, err, o.fields())
		}
		o.mu.Lock()
		looked := o.looks > 0
		for _, lane := range all {
			if !looked {
				o.noteLocked(lane, time.Now(), load{})
			}
		}
		o.mu.Unlock()
		if looked {
			return
		}
	}
}

// seen is how often the source was looked at.
func (o *Owner) seen() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.looks
}

// leave forgets a lane that had no row, or none for a process that stands by. What was looked at since then may have
// one: then the lane is looked at again.
func (o *Owner) leave(l *Lane, seen int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.looks != seen {
		o.laterLocked(l, time.Now())
		return
	}
	delete(o.lanes, string(l.Key))
	o.count.Add(-1)
	o.addLocked(l, load{-l.messages, -l.bytes})
}

// takes reports whether a process that stands by has a message for itself.
func (o *Owner) takes(ctx context.Context, row *Row) bool {
	taken := false
	return !row.Held && o.insist(ctx, func() error {
		n, err := o.store.touch(ctx, o.of, row, o.Late)
		taken = n > 0
		return err
	}) && taken
}

// atWork says again and again that the process is at work on a message, until stop is called.
func (o *Owner) atWork(ctx context.Context, row *Row) (stop func()) {
	if o.Late == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for timing.Wait(ctx, o.Late/3) {
			_, _ = o.store.touch(ctx, o.of, row, 0) // the next time will do
		}
	}()
	return cancel
}

// late returns the sequences whose first message is due for longer than late, and not held.
func (s *Store) late(ctx context.Context, of parked.Source, late time.Duration) (lanes [][]byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, parked.MaxWrite)
	defer cancel()
	err = s.db.QueryPlanned(ctx, func() { lanes = nil }, database.Into(&lanes), s.db.Statement(`SELECT p.lane FROM spillway_parked p JOIN (SELECT MIN(seq) AS seq FROM spillway_parked WHERE source = ?
GROUP BY lane) first ON first.seq = p.seq WHERE p.due_at < now_us() - ? AND `+isHeld+` = 0`), []byte(of.Hash(s.service)), late.Microseconds())
	return lanes, err
}

// touch writes that a message is due now, if it was due for longer than late.
func (s *Store) touch(ctx context.Context, of parked.Source, row *Row, late time.Duration) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, parked.MaxWrite)
	defer cancel()
	return s.db.Exec(ctx, s.db.Statement(`UPDATE spillway_parked SET due_at = now_us() WHERE source = ? AND position = ?
AND fingerprint = ? AND due_at < now_us() - ?`), append(s.message(of, row), late.Microseconds())...)
}

// lookEvery is how soon an owner sees what a person decided. It is one query of an index, and none if nothing is
// parked.
var lookEvery = 5 * time.Second

// lookForDecisions lets lanes be drained for which a person decided something.
func (o *Owner) lookForDecisions(ctx context.Context) {
	o.mu.Lock()
	due := len(o.lanes) > 0 && time.Since(o.looked) >= lookEvery
	if due {
		o.looked = time.Now()
	}
	o.mu.Unlock()
	if !due {
		return
	}
	lanes, err := o.store.Decided(ctx, o.of)
	if err != nil && ctx.Err() == nil {
		logging.SequencesUnavailable.Write(o.Logger, err, o.fields())
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, lane := range lanes {
		// What is not known was parked by a process that does not own the source any more: the next owner finds it.
		if l := o.lanes[string(lane)]; l != nil && l.index >= 0 {
			l.due = time.Now()
			heap.Fix(&o.due, l.index)
		}
	}
}
