package crashlimit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/middleware/internal/deliveries"
)

// process is this process while it is registered, or tries to be.
type process struct {
	limit    *Limit
	id       string
	detector detector
	swept    time.Time
	cancel   context.CancelFunc // of the beats
	done     chan struct{}
}

// self names this process, and is in the ids of all its limits: whatever became of their deliveries, it has lived
// through it. A number would not do: in a container each process has the same.
var self = rand.Text()

var limits atomic.Int64

func (l *Limit) nextID() string { return l.self + "." + strconv.FormatInt(limits.Add(1), 36) }

// begin registers this process, unless it is. With insist a store that is down is an error; without it is logged, and
// the beats go on trying.
func (l *Limit) begin(insist bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil {
		return nil
	}
	p := &process{
		limit: l, id: l.nextID(), done: make(chan struct{}),
		detector: detector{interval: l.config.Heartbeat, quietAfter: l.config.quietAfter},
	}
	err := p.round(context.Background())
	if err != nil && insist {
		ctx, cancel := l.bounded(context.Background())
		defer cancel()
		_ = l.config.Store.SignOff(ctx, p.id) // it may have come through
		return fmt.Errorf("crashlimit: register this process in the store: the database must answer when the router "+
			"starts; start the router again when it does: %w", err)
	}
	l.outage.note(l.config.Logger, err)
	l.mode.Store(p.mode())
	if l.mode.Load() == marking {
		eventCrashPeers.Write(l.config.Logger, nil, nil)
	}
	l.current = p
	beats, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go p.run(beats)
	return nil
}

// depart signs off the marks of what is still being handled: whatever becomes of those deliveries, the process ended in
// order. Its registration stays until the last of them returns.
func (l *Limit) depart() error {
	l.pending.end()
	id := l.process()
	if id == "" || l.admission.isEmpty() {
		return nil
	}
	ctx, cancel := l.bounded(context.Background())
	defer cancel()
	if err := l.config.Store.Leave(ctx, id); err != nil {
		return fmt.Errorf("crashlimit: sign off the messages that are still being handled: %w", err)
	}
	return nil
}

// process returns the id of this process while it is registered, or tries to be.
func (l *Limit) process() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		return ""
	}
	return l.current.id
}

// signOffIfIdle signs this process off after the end was asked for and the last message has returned.
func (l *Limit) signOffIfIdle() error {
	if !l.admission.isEmpty() {
		return nil // the last one will
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil || !l.closing.Load() {
		return nil
	}
	before := l.mode.Swap(off) // a message that comes from now on registers again
	if !l.admission.isEmpty() {
		l.mode.Store(before)
		return nil
	}
	p := l.current
	l.current = nil
	return p.end()
}

func (p *process) mode() int32 {
	if p.detector.marking(time.Now()) {
		return marking
	}
	return quiet
}

// turn changes between quiet and marking. It never wakes a limit that is off.
func (l *Limit) turn(to int32) {
	if to == marking && l.mode.CompareAndSwap(quiet, marking) {
		eventCrashDetected.Write(l.config.Logger, nil, logging.Fields{"for": l.config.quietAfter.String()})
	}
	if to == quiet && l.mode.CompareAndSwap(marking, quiet) {
		eventCrashQuiet.Write(l.config.Logger, nil, nil)
	}
}

// end stops the beats, and signs off.
func (p *process) end() error {
	p.cancel()
	<-p.done
	ctx, cancel := p.limit.bounded(context.Background())
	defer cancel()
	_ = p.pay(ctx)
	if err := p.limit.config.Store.Leave(ctx, p.id); err != nil {
		return fmt.Errorf("crashlimit: sign this process off: remove its marks: %w", err)
	}
	if err := p.limit.config.Store.SignOff(ctx, p.id); err != nil {
		return fmt.Errorf("crashlimit: sign this process off: %w", err)
	}
	return nil
}

const (
	sweepEvery = time.Minute
	keepMarks  = 30 * 24 * time.Hour
)

// run beats until ctx ends.
func (p *process) run(ctx context.Context) {
	defer close(p.done)
	ticker := time.NewTicker(p.limit.config.Heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := p.round(ctx)
		if ctx.Err() != nil {
			return
		}
		if mode := p.mode(); err == nil || mode == marking { // an outage is no clean run
			p.limit.turn(mode)
		}
		if err == nil {
			err = p.pay(ctx)
		}
		p.limit.outage.note(p.limit.config.Logger, err)
		if err == nil {
			p.sweep(ctx)
		}
	}
}

// round shows that this process lives, and looks at the others.
func (p *process) round(ctx context.Context) error {
	ctx, cancel := p.limit.bounded(ctx)
	defer cancel()
	store := p.limit.config.Store
	if err := p.live(ctx); err != nil {
		return err
	}
	rows, err := store.Others(ctx, p.id)
	if err != nil {
		return err
	}
	now := time.Now()
	stale, forgotten := p.detector.look(now, rows)
	for _, r := range stale {
		lost, failed := store.Lose(ctx, r.ID, r.Beats)
		if err = errors.Join(err, failed); lost {
			p.detector.lost(now, r.ID)
		}
	}
	for _, r := range forgotten {
		err = errors.Join(err, store.Forget(ctx, r.ID))
	}
	return err
}

// live shows that this process lives, or registers it: it is new, or was suspended for long and forgotten.
func (p *process) live(ctx context.Context) error {
	config := &p.limit.config
	if there, err := config.Store.Beat(ctx, p.id); err != nil || there {
		return err
	}
	node, _ := os.Hostname()
	return config.Store.Register(ctx, deliveries.Process{ID: p.id, Node: boundedtext.Text(node, 128),
		Interval: config.Heartbeat})
}

// pay removes the marks of deliveries that returned.
func (p *process) pay(ctx context.Context) error {
	for m, w := range p.limit.removals.all() {
		one, cancel := p.limit.bounded(ctx)
		err := p.limit.config.Store.Clear(one, m, w)
		if cancel(); err != nil {
			return err // at the next beat
		}
		p.limit.removals.done(m, w)
	}
	return nil
}

// sweep removes, now and then, the marks of messages that never came again, and of dead letters. An ack is not always
// the broker's at once: Kafka's client commits once a second, and a transaction commits several. If the process ends
// before, the message comes again, and must find its marks.
func (p *process) sweep(ctx context.Context) {
	if time.Since(p.swept) < sweepEvery {
		return
	}
	p.swept = time.Now()
	ctx, cancel := p.limit.bounded(ctx)
	defer cancel()
	if err := p.limit.config.Store.Sweep(ctx, keepMarks, p.limit.config.quietAfter); err != nil {
		eventCrashMarksKept.Write(p.limit.config.Logger, err, nil)
	}
}

// The crash limit.
var (
	// outage: Repair the database.
	eventCrashStoreUnavailable = logging.ErrorEvent("crash_store_unavailable",
		"The store of the crash limit fails; until it answers, crashes go undetected and messages are handled unmarked")
	// outage: nothing
	eventCrashStoreBack = logging.InfoEvent("crash_store_back", "The store of the crash limit answers again")
	// each: nothing
	eventCrashLetterPlaced = logging.InfoEvent("crash_letter_placed",
		"A message that was dead-lettered because it ended processes came again: it is acked, and has one dead letter")
	// each: Repair the database, if it goes on.
	eventCrashMarksKept = logging.InfoEvent("crash_marks_kept",
		"Old marks of the crash limit cannot be removed; this is tried again")
	// outage: Repair the database; a message may be dead-lettered early.
	eventCrashMarkLost = logging.ErrorEvent("crash_mark_lost",
		"A mark that is to be removed is forgotten, and more may be; it counts until its message is handled again, "+
			"or for 30 days")
	// stop: Nothing, if you cut handlers off.
	eventCrashMessagesUnsigned = logging.ErrorEvent("crash_messages_unsigned",
		"Messages that are still being handled are not signed off; they count as if this process had died")
	// stop: Repair the database.
	eventCrashProcessUnsigned = logging.ErrorEvent("crash_process_unsigned",
		"This process is not signed off; other processes will take its end for a crash")
	// start: nothing
	eventCrashPeers = logging.InfoEvent("crash_peers",
		"Other processes have not signed off; deliveries are marked until each has sent two heartbeats")
	// each: Look why the process ended: docs/crashes.md.
	eventCrashDetected = logging.InfoEvent("crash_detected", "A process crashed; deliveries are marked")
	// once: nothing
	eventCrashQuiet = logging.InfoEvent("crash_quiet", "No process crashed since; deliveries are no longer marked")
)
