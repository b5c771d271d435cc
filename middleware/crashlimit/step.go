package crashlimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/middleware/internal/deliveries"
)

// What a Limit does with the messages that come.
const (
	off     = int32(iota) // this process is not registered
	quiet                 // nothing: no process ended uncleanly
	marking               // each delivery leaves a mark that its end removes
)

func (l *Limit) step(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
		if l.config.Delivered != nil {
			if n, ok := l.delivered(c.Msg); ok && n >= l.brokerMax {
				return nil, chain.Outcome{Next: chain.DeadLetter, Why: l.exceeded(c, l.markOf(c), n, true)}
			}
		}
		if l.config.Store == nil {
			return next(c)
		}
		v := visit{limit: l}
		l.admission.unmarked.Add(1)
		defer v.end() // also of a panic and of runtime.Goexit
		if l.mode.Load() != quiet {
			if err := v.begin(c); errors.Is(err, errHasLetter) {
				return nil, chain.Outcome{}
			} else if chain.IsAborted(err) {
				return nil, chain.Outcome{Next: chain.Requeue, Why: err}
			} else if err != nil {
				return nil, chain.Outcome{Next: chain.DeadLetter, Why: err}
			}
		}
		out, o := next(c)
		if v.share != nil && o.Next == chain.Done && len(out) > 0 && l.await(c, v) {
			v.limit = nil // the copy ends it
		}
		return out, o
	}
}

func (l *Limit) delivered(msg *message.Message) (n int, ok bool) {
	safecall.Hook(l.config.Logger, "Config.Delivered", func() { n, ok = l.config.Delivered(msg) })
	return n, ok
}

// visit is one delivery.
type visit struct {
	limit *Limit
	mark  deliveries.Key
	slot  slot
	share *share // in that mark, or nil
	// turned says that a suspect had its turn to run alone.
	turned   bool
	notified bool // OnUnfinished was called
}

// begin comes before the handler where there is more to do than nothing. Its error is instead of the handler's.
func (v *visit) begin(c *chain.Call) (err error) {
	l := v.limit
	if l.config.Store.Within(c.Ctx) { // it would wait for itself
		return nil
	}
	if l.mode.Load() == off {
		_ = l.begin(false) // whose error is logged
	}
	process := l.process()
	if process == "" || l.mode.Load() != marking || l.outage.pass() {
		return nil
	}
	m := l.markOf(c)
	share, first := l.admission.share(m)
	v.mark, v.share = m, share
	// the limit is attached twice, or the message was delivered twice: one mark serves all, until the last returns
	if !first {
		return v.join(c)
	}
	defer func() { share.decide(err) }()
	if err := v.move(c, false); err != nil {
		return err
	}
	return v.count(c, process)
}

// join waits until the first delivery of the message knows whether it goes on, and does as that does.
func (v *visit) join(c *chain.Call) error {
	select {
	case <-v.share.decided:
	default:
		v.slot = v.limit.admission.wait(v.slot)
		ctx := c.WaitContext()
		select {
		case <-v.share.decided:
		case <-ctx.Done():
			return chain.Requeued(context.Cause(ctx))
		}
	}
	if v.share.refused {
		return chain.Requeued(errNotFirst)
	}
	return nil
}

var errNotFirst = errors.New("crashlimit: the first delivery of this message in this process was refused or " +
	"requeued: this one is requeued too")

// count leaves the mark of this delivery, unless too many processes ended with one. A store that fails stops no
// message.
func (v *visit) count(c *chain.Call, process string) error {
	l, w, q := v.limit, deliveries.Mark{Delivery: 1, Process: process}, inquiry{limit: v.limit, seen: map[string]int64{}, begun: time.Now()}
	for {
		entered, err := l.enter(c, v.mark, w)
		if entered {
			l.admission.wrote(v.share, w)
			// the marks of this process are signed off already, or are just now; those of others stay
			if l.closing.Load() {
				l.remove(v.mark, deliveries.Mark{Delivery: 1, Process: process})
			}
			return nil
		}
		var found []deliveries.Found
		for again := true; again && err == nil; {
			if found, err = l.marksOf(c, v.mark); err != nil {
				break
			}
			var instead error
			if again, instead = v.weigh(c, &q, found); instead != nil {
				return instead
			}
		}
		if err != nil {
			l.failed(v.mark, w, err)
			return nil
		}
		w.Delivery = 1
		if len(found) > 0 {
			w.Delivery = found[len(found)-1].Delivery + 1
		}
	}
}

// weigh decides by what was found whether the message goes on, and waits for its turn. It reports whether to look
// again.
func (v *visit) weigh(c *chain.Call, q *inquiry, found []deliveries.Found) (again bool, err error) {
	l := v.limit
	if len(found) > 0 && found[0].Delivery == 0 && found[0].Mark == letterOf(c) {
		eventCrashLetterPlaced.Write(l.config.Logger, nil, fieldsOf(v.mark))
		return false, errHasLetter
	}
	dead, unknown := q.judge(found)
	if v.mark.Content { // as a rule these are other messages, in processes that live
		unknown = 0
	}
	if dead > 0 && !v.notified {
		v.notified = true
		l.unfinished(c, v.mark, dead)
	}
	switch {
	case dead >= l.config.Max:
		return false, l.refuse(c, v.mark, dead)
	case dead+unknown >= l.config.Max:
		v.slot, v.turned = l.admission.wait(v.slot), false
		return true, q.wait(c)
	case dead+unknown > 0 && !v.turned:
		// A suspect was in flight when a process ended. It runs alone, so that if this one ends too, only the deadly
		// message is counted, and it is counted only when it runs: others wait for the same.
		v.turned = true
		return true, v.move(c, true)
	case v.slot == slotAside:
		return true, v.move(c, false)
	}
	return false, nil
}

// move waits for a slot among the others or alone. A message that went away meanwhile is requeued.
func (v *visit) move(c *chain.Call, alone bool) (err error) {
	ctx := c.WaitContext()
	if v.slot, err = v.limit.admission.move(ctx, v.slot, alone, v.limit.config.aloneWait); err != nil {
		return chain.Aborted(fmt.Errorf("crashlimit: wait to be handled alone: %w", err))
	}
	return nil
}

// end comes after the handler, however that ended. The mark goes before the slot does: the next delivery starts after.
func (v *visit) end() {
	l := v.limit
	if l == nil {
		return
	}
	if v.share != nil {
		l.admission.part(v.mark, v.share, l.remove)
	}
	l.admission.leave(v.slot)
	if l.closing.Load() {
		l.signOffOrLog() // if this was the last one
	}
}

// errHasLetter says that the letter of the message has its place already: the message is acked.
var errHasLetter = errors.New("crashlimit: the dead letter of this message has its place")

// refusal is the error of a message that is refused.
type refusal struct {
	error
	limit  *Limit
	mark   deliveries.Key
	letter deliveries.Mark
}

// Placed notes that the dead letter of the message has its place. The message may come again nevertheless, because its
// ack is lost with this process, or waits at the broker for an earlier one. Then it has a letter.
func (r refusal) Placed() {
	ctx, cancel := r.limit.bounded(context.Background())
	defer cancel()
	var err error
	if r.mark.Content { // other messages would find the marks
		err = r.limit.config.Store.Clear(ctx, r.mark, deliveries.All)
	} else {
		_, err = r.limit.config.Store.Enter(ctx, r.mark, r.letter)
	}
	if err != nil { // then it has another letter
		r.limit.outage.began(r.limit.config.Logger, err)
	}
}

// letterOf is the mark of the letter of a message with this content. It is no delivery.
func letterOf(c *chain.Call) deliveries.Mark {
	return deliveries.Mark{Process: "letter " + contentOf(c.Msg)}
}

func (l *Limit) refuse(c *chain.Call, m deliveries.Key, earlier int) error {
	placing.First(c.PlaceContext())
	return refusal{l.exceeded(c, m, earlier, false), l, m, letterOf(c)}
}

func (r refusal) Unwrap() error { return r.error }

func (l *Limit) unfinished(c *chain.Call, m deliveries.Key, earlier int) {
	if l.config.Hooks.OnUnfinished != nil {
		safecall.Hook(l.config.Logger, "Config.OnUnfinished", func() {
			l.config.Hooks.OnUnfinished(c.Ctx, Unfinished{Consumer: m.Consumer, Key: m.ID, Deliveries: earlier})
		})
	}
}

func (l *Limit) exceeded(c *chain.Call, m deliveries.Key, earlier int, broker bool) error {
	if l.config.Hooks.OnExceeded != nil {
		safecall.Hook(l.config.Logger, "Config.OnExceeded", func() {
			l.config.Hooks.OnExceeded(c.Ctx, Unfinished{Consumer: m.Consumer, Key: m.ID, Deliveries: earlier,
				Broker: broker})
		})
	}
	allowed := l.config.Max
	counted := "deliveries of this message did not return: the process ended while it was being handled"
	if broker {
		allowed, counted = l.brokerMax, "deliveries of this message came back to the broker, by its own count"
	}
	text := strconv.Itoa(earlier) + " " + counted + "; " + strconv.Itoa(allowed) + " are allowed"
	return classify.Permanent(errors.New("crashlimit: "+boundedtext.Text(m.ID, 128)+": "+text),
		classify.Reason(classify.ReasonMaxDeliveries), classify.Description(text))
}
