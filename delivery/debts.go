package delivery

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// debts are marks that are to be removed later.
type debts struct {
	mu     sync.Mutex
	owed   map[mark]string // of deliveries that returned, by the process that wrote them; "" is any
	kept   []refused
	resume time.Time // when marks may be written again after one failed
	full   atomic.Bool
}

// refused is a message that was refused, and keeps its mark until it is acked.
type refused struct {
	msg  *message.Message
	ctx  context.Context // as it was: that of the message may change meanwhile
	mark mark
}

// most bounds each kind of debt, so that a store that is away costs no more memory than this. What is more is dropped, and
// that is logged: such a mark counts until its message is handled to the end again, or the sweep takes it after keepMarks.
const most = 1024

func (d *debts) usable() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !time.Now().Before(d.resume)
}

// pause stops the writing of marks for a while, and tells whether it was not stopped yet.
func (d *debts) pause() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	first := !now.Before(d.resume)
	d.resume = now.Add(pause)
	return first
}

// owe tells whether there was room for one more.
func (d *debts) owe(m mark, process string) (room bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owed == nil {
		d.owed = make(map[mark]string)
	}
	if _, there := d.owed[m]; !there && len(d.owed) >= most {
		return false
	}
	d.owed[m] = process
	return true
}

func (d *debts) owes(m mark) (process string, owes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	process, owes = d.owed[m]
	return process, owes
}

func (d *debts) paid(m mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.owed, m)
}

// keep tells whether there was room for one more.
func (d *debts) keep(r refused) (room bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.kept) >= most {
		return false
	}
	d.kept = append(d.kept, r)
	return true
}

// due returns the marks to remove now. Those of refused messages that were acked are owed from now on; one that was
// nacked, or went away, comes again and keeps its mark.
func (d *debts) due() map[mark]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	undecided := d.kept[:0]
	for _, r := range d.kept {
		switch {
		case closed(r.msg.Acked()):
			if d.owed == nil {
				d.owed = make(map[mark]string)
			}
			d.owed[r.mark] = ""
		case closed(r.msg.Nacked()), r.ctx.Err() != nil:
		default:
			undecided = append(undecided, r)
		}
	}
	clear(d.kept[len(undecided):])
	d.kept = undecided
	due := make(map[mark]string, len(d.owed))
	for m, process := range d.owed {
		due[m] = process
	}
	return due
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
