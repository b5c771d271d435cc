package crashlimit

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/logging"
)

// process is this process while it is registered, or tries to be.
type process struct {
	limit      *Limit
	id         string
	detector   detector
	registered bool
	behind     bool // marks that are due could not be removed
	swept      time.Time
	ctx        context.Context // ends with the beats
	cancel     context.CancelFunc
	done       chan struct{}
	settled    chan struct{} // a message that was refused may have been acked
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
		limit: l, id: l.nextID(), done: make(chan struct{}), settled: make(chan struct{}, 1),
		detector: detector{interval: l.config.Heartbeat, quietAfter: l.config.quietAfter},
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.config.within)
	defer cancel()
	err := p.round(ctx)
	if err != nil && insist {
		p.withdraw()
		return fmt.Errorf("crashlimit: register this process in the store: the database must answer when the router "+
			"starts; start the router again when it does: %w", err)
	}
	p.note(ctx, err)
	l.mode.Store(p.mode())
	if l.mode.Load() == marking {
		logging.CrashPeers.Write(l.config.Logger, nil, nil)
	}
	l.current = p
	p.ctx, p.cancel = context.WithCancel(context.Background())
	go p.run(p.ctx)
	return nil
}

// depart signs off the marks of what is still being handled: whatever becomes of those deliveries, the process ended in
// order. Its registration stays until the last of them returns.
func (l *Limit) depart() error {
	l.endPending()
	id := l.process()
	if id == "" || l.admission.isEmpty() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.config.within)
	defer cancel()
	if err := l.config.store.leave(ctx, id); err != nil {
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
		logging.CrashDetected.Write(l.config.Logger, nil, logging.Fields{"for": l.config.quietAfter.String()})
	}
	if to == quiet && l.mode.CompareAndSwap(marking, quiet) {
		logging.CrashQuiet.Write(l.config.Logger, nil, nil)
	}
}

// end stops the beats, and signs off.
func (p *process) end() error {
	p.cancel()
	<-p.done
	ctx, cancel := context.WithTimeout(context.Background(), p.limit.config.within)
	defer cancel()
	p.pay(ctx, 0) // the subscription has ended, and left its acks with the broker
	if err := p.limit.config.store.leave(ctx, p.id); err != nil {
		return fmt.Errorf("crashlimit: sign this process off: remove its marks: %w", err)
	}
	if err := p.limit.config.store.signOff(ctx, p.id); err != nil {
		return fmt.Errorf("crashlimit: sign this process off: %w", err)
	}
	return nil
}

// withdraw takes back a registration that may have come through before something failed.
func (p *process) withdraw() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = p.limit.config.store.signOff(ctx, p.id)
}
