package delivery

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/bounded"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/contain"
)

// What a Limit does with the messages that come.
const (
	off     = int32(iota) // nobody registered this process
	quiet                 // nothing: no process ended uncleanly
	marking               // each delivery leaves a mark that its end removes
)

// Step is the limit's share of a chain, for the front door.
func (l *Limit) Step(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, error) {
		if l.config.Delivered != nil {
			if n, ok := l.delivered(c.Msg); ok && n >= l.brokerMax {
				return nil, l.exceeded(c, l.markOf(c.Msg), n, true)
			}
		}
		if l.config.Store == nil {
			return next(c)
		}
		v := visit{limit: l}
		l.room.plain.Add(1)
		defer v.end() // also of a panic and of runtime.Goexit
		if l.mode.Load() != quiet {
			if err := v.begin(c); err != nil {
				return nil, err
			}
		}
		return next(c)
	}
}

func (l *Limit) delivered(msg *message.Message) (n int, ok bool) {
	contain.Hook(l.config.Logger, "LimitConfig.Delivered", func() { n, ok = l.config.Delivered(msg) })
	return n, ok
}

// visit is one delivery.
type visit struct {
	limit   *Limit
	mark    mark
	place   place
	owns    bool   // that mark is this visit's, and nobody else's in this process
	written string // by which process the mark was written
}

// begin comes before the handler where there is more to do than nothing. Its error is instead of the handler's.
func (v *visit) begin(c *chain.Call) error {
	l := v.limit
	if l.config.Store.within(c.Ctx) { // who waited for the store would wait for itself
		return nil
	}
	if l.mode.Load() == off {
		_ = l.begin(false) // whose error is logged
	}
	process := l.process()
	if process == "" || l.mode.Load() != marking || !l.debts.usable() {
		return nil
	}
	m := l.markOf(c.Msg)
	if !l.room.own(m) { // the limit is attached twice, or the message was delivered twice: the first one's mark serves both
		return nil
	}
	v.mark, v.owns = m, true
	if err := v.move(c, false); err != nil {
		return err
	}
	earlier, err := l.enter(c, m, process)
	switch {
	case err != nil:
		l.failed(c, m, process, err)
		return nil
	case earlier == 0:
		v.written = process
		return nil
	case earlier >= l.config.Max:
		return l.refuse(c, m, earlier)
	}
	return v.suspected(c, process)
}

// suspected is for a message that was in flight when a process ended. It runs alone, so that if this one ends too, only the
// deadly message is counted, and it is counted only when it runs: others wait for the same.
func (v *visit) suspected(c *chain.Call, process string) error {
	l := v.limit
	if err := v.move(c, true); err != nil {
		return err
	}
	deliveries, err := l.again(c, v.mark, process)
	if err != nil {
		l.failed(c, v.mark, process, err)
		return nil
	}
	if deliveries > l.config.Max { // others counted meanwhile
		return l.refuse(c, v.mark, deliveries-1)
	}
	v.written = process
	return nil
}

// move waits for a place among the others or alone. A message that went away meanwhile is given back.
func (v *visit) move(c *chain.Call, alone bool) (err error) {
	ctx := c.WaitContext()
	if v.place, err = v.limit.room.move(ctx, v.place, alone, v.limit.config.AloneWait); err != nil {
		return c.Abort(fmt.Errorf("delivery: wait to be handled alone: %w", err))
	}
	return nil
}

// end comes after the handler, however that ended. The mark goes before the place does: whoever comes next starts after.
func (v *visit) end() {
	l := v.limit
	if v.written != "" {
		l.remove(v.mark, v.written)
	}
	if v.owns {
		l.room.disown(v.mark)
	}
	l.room.leave(v.place)
	if l.closing.Load() {
		l.signOffOrLog() // if this was the last one
	}
}

// refuse keeps the mark until the message is acked: if its letter finds no place now, it must not kill once more.
func (l *Limit) refuse(c *chain.Call, m mark, earlier int) error {
	l.kept(l.debts.keep(refused{c.Msg, c.Ctx, m}), m)
	return l.exceeded(c, m, earlier, false)
}

func (l *Limit) exceeded(c *chain.Call, m mark, earlier int, broker bool) error {
	if l.config.OnExceeded != nil {
		contain.Hook(l.config.Logger, "LimitConfig.OnExceeded", func() {
			l.config.OnExceeded(c.Ctx, Exceeded{Consumer: m.consumer, Key: m.id, Deliveries: earlier, Broker: broker})
		})
	}
	allowed := l.config.Max
	counted := "deliveries of this message did not return: the process ended while it was being handled, or they still run"
	if broker {
		allowed, counted = l.brokerMax, "deliveries of this message came back to the broker, by its own count"
	}
	text := strconv.Itoa(earlier) + " " + counted + "; " + strconv.Itoa(allowed) + " are allowed"
	return classify.Permanent(errors.New("delivery: "+bounded.Text(m.id, 128)+": "+text),
		classify.Reason(classify.ReasonMaxDeliveries), classify.Description(text))
}
