package crashlimit

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
)

// debts are marks that are to be removed later.
type debts struct {
	mu   sync.Mutex
	owed map[mark]written // of deliveries that returned
	kept []refused
	full atomic.Bool
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

// owe reports whether there was room for one more.
func (d *debts) owe(m mark, w written) (room bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owed == nil {
		d.owed = make(map[mark]written)
	}
	if _, there := d.owed[m]; !there && len(d.owed) >= most {
		return false
	}
	d.owed[m] = w
	return true
}

func (d *debts) owes(m mark) (w written, owes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w, owes = d.owed[m]
	return w, owes
}

func (d *debts) paid(m mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.owed, m)
}

// keep reports whether there was room for one more.
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
func (d *debts) due() map[mark]written {
	d.mu.Lock()
	defer d.mu.Unlock()
	undecided := d.kept[:0]
	for _, r := range d.kept {
		switch {
		case closed(r.msg.Acked()):
			if d.owed == nil {
				d.owed = make(map[mark]written)
			}
			d.owed[r.mark] = all
		case closed(r.msg.Nacked()), r.ctx.Err() != nil:
		default:
			undecided = append(undecided, r)
		}
	}
	clear(d.kept[len(undecided):])
	d.kept = undecided
	return maps.Clone(d.owed)
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// owe remembers a mark that is to be removed, and logs the first one for which there was no room. More of them would say
// nothing new.
func (l *Limit) owe(m mark, w written) { l.kept(l.debts.owe(m, w), m) }

func (l *Limit) kept(room bool, m mark) {
	if !room && l.debts.full.CompareAndSwap(false, true) {
		l.config.Logger.Error("crashlimit: a mark that is to be removed is forgotten, and perhaps others are: it counts until its message "+
			"is handled again, or until old marks are removed", errTooMany, m.fields())
	}
}

var errTooMany = errors.New("crashlimit: " + strconv.Itoa(most) + " marks wait to be removed")
