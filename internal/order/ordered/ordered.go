// Package ordered is the part of a chain that parks messages, as package sequence says. It stands at three places:
//
//   - Outer, inside of the queue: a message whose sequence is parked is appended, before anything is done for it.
//   - Parking, where stages would stand: a message that failed, and can succeed later, is parked.
//   - Inner, around the handler: a handler that acks its message itself is refused. Its lane would not see when the
//     outputs are published.
package ordered

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/observe"
)

// Config configures a Part. Each field is required.
type Config struct {
	Delays  []time.Duration // of a message that fails again and again
	Hold    bool            // one that fails for good lets its sequence stand
	Keys    keytable.Receiver
	Store   *sequence.Store
	Queue   Queue
	StageOf func(*message.Message) deadletter.Stage
	observe.Shared
}

// Queue is what a Part needs of a poison.Queue.
type Queue interface {
	Cause(err error) error
	Classifier() *classify.Classifier
	ForStage(original *message.Message, failure *classify.Failure, number int,
		due, holdUntil time.Time) *message.Message
	FromStage(msg *message.Message)
}

// Part keeps the order of keys in the chains of a channel.
type Part struct {
	config   Config
	sink     *outage.Dependency
	ordering sequence.Ordering

	Outer, Parking, Inner chain.Part
}

type (
	link  = chain.Link
	owned = outage.Owned
)

// parking is the part that the channel reports on.
type parking struct {
	link
	owned
}

// New returns a Part.
func New(config Config) *Part {
	config.Logger = logging.Wrap(config.Logger, nil)
	p := &Part{config: config}
	p.sink = outage.New(outage.Config{Name: "ordered: the store of parked messages", Lost: outage.Lost,
		Logger: config.Logger})
	p.ordering = sequence.Ordering{Store: config.Store, Keys: config.Keys, Logger: config.Logger, Open: p.open}
	p.Outer, p.Inner = chain.LinkOf(p.outer), chain.LinkOf(inner)
	p.Parking = parking{chain.LinkOf(p.parking), outage.OwnedBy(p.sink)}
	return p
}

// Ordering is what subscribers are offered.
func (p *Part) Ordering() *sequence.Ordering { return &p.ordering }

// Total is the longest time that a message waits in all delays.
func (p *Part) Total() (total time.Duration) {
	for _, d := range p.config.Delays {
		total += d + d/10
	}
	return total
}

// open makes of a parked message what its handler gets.
func (p *Part) open(msg *message.Message) (stage int) {
	if stage = p.config.StageOf(msg).Number; stage > 0 {
		p.config.Queue.FromStage(msg)
	}
	return stage
}

var errNoOrder = errors.New("ordered: the message did not come from its subscriber as it is: a middleware or decorator " +
	"outside of the channel copied it, and its place in the order of its key is not known any more. Add the channel first, " +
	"with Attach, and pass on the message itself")

// outer appends a message whose sequence is parked.
func (p *Part) outer(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
		d := sequence.Of(c)
		if d == nil {
			eventOrderUnknown.Write(p.config.Logger, errNoOrder, logging.Fields{logging.MessageID: c.Msg.UUID,
				logging.Handler: message.HandlerNameFromCtx(c.Ctx),
				logging.Topic:   message.SubscribeTopicFromCtx(c.Ctx)})
			return nil, chain.OutcomeOf(chain.Requeued(errNoOrder))
		}
		if d.Appends {
			return nil, p.place(c, d, nil, c.Original, 0)
		}
		if d.Row != nil && d.Row.Decision > parked.Release {
			return nil, chain.Outcome{Next: chain.DeadLetter, Why: decided(d.Row)}
		}
		out, o := next(c)
		if p.holds(c, d, o) {
			return nil, p.hold(c, d, o.Why)
		}
		return out, o
	}
}

// inner refuses a handler that acks.
func inner(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
		out, o := next(c)
		if o.Next == chain.Done && c.Acked() {
			return nil, chain.Outcome{Next: chain.Failed, Why: errAcked}
		}
		return out, o
	}
}

const acked = "the handler acked its message itself, which Config.Ordered does not allow: the next message of the key " +
	"would begin before the outputs of this one are published. Return nil instead"

var errAcked = classify.Permanent(errors.New("ordered: "+acked), classify.Description(acked))

// waits is what the parts further in ask of stages.
type waits struct{ of *Part }

func (waits) Has(*chain.Call) bool { return true }

func (w waits) HasNext(c *chain.Call, v classify.Verdict) bool {
	_, _, ok := w.of.next(c, v)
	return ok && attempts.CanSucceed(v.Class)
}

// maxRetryAfter is the longest wait that an error may ask for, if no delay is longer.
const maxRetryAfter = 24 * time.Hour

// next returns the number of the next delay, and its time.
func (p *Part) next(c *chain.Call, v classify.Verdict) (number int, wait time.Duration, ok bool) {
	if c.Reentry != nil {
		number = c.Reentry.Stage
	}
	if number >= len(p.config.Delays) || v.RetryAfter > max(maxRetryAfter, p.config.Delays[len(p.config.Delays)-1]) {
		return 0, 0, false
	}
	wait = p.config.Delays[number]
	return number + 1, max(wait+rand.N(wait/10+1), v.RetryAfter), true
}

// parking parks a message that failed.
func (p *Part) parking(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
		if c.Reentry != nil {
			c.Reentry.Met = true
		}
		c.EnterStages(waits{p})
		out, o := next(c)
		if o.Next == chain.Failed || o.Next == chain.Stage {
			return nil, p.later(c, o)
		}
		return out, o
	}
}

func (p *Part) later(c *chain.Call, o chain.Outcome) chain.Outcome {
	d := sequence.Of(c)
	if c.Nacked() || c.Claimed() || c.Left(o) || d == nil {
		return o
	}
	failure := attempts.Of(p.config.Classifier, o.Why)
	number, wait, ok := p.next(c, failure.Verdict)
	if !ok || !attempts.CanSucceed(failure.Verdict.Class) || c.Acked() {
		return chain.Outcome{Next: chain.DeadLetter, Why: failure}
	}
	c.Restore()
	placed := p.place(c, d, failure, func() *message.Message {
		return p.config.Queue.ForStage(c.Original(), failure, number, time.Now().Add(wait), time.Time{})
	}, wait)
	if placed.Next == chain.Done {
		p.say(eventMessageParked, c, failure,
			logging.Fields{logging.Stage: number, logging.Attempt: failure.Attempts, logging.Wait: wait})
	}
	return placed
}

// maxPark bounds one attempt to write a row.
const maxPark = 30 * time.Second

// place parks the message, or holds its sequence there. While the database is unavailable it is held.
func (p *Part) place(c *chain.Call, d *sequence.Delivery, failure error, made func() *message.Message,
	wait time.Duration) chain.Outcome {
	original := c.Original()
	key, err := p.config.Keys.Key(c.Ctx, original)
	if err != nil { // it never has an effect, so its key need not stay
		key = keytable.Key{}
	}
	err = p.sink.Do(c.PlaceContext(), c, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Ctx), maxPark)
		defer cancel()
		return d.Park(ctx, original, &sequence.Row{Key: key, Msg: made(), Held: wait == held}, max(0, wait))
	})
	switch {
	case err == nil:
		return chain.Outcome{}
	case chain.IsAborted(err):
		return chain.Outcome{Next: chain.Requeue, Why: err}
	case p.config.Queue.Classifier().IsTooLarge(err):
		return chain.Outcome{Next: chain.DeadLetter, Why: errors.Join(failure, err)}
	}
	err = fmt.Errorf("ordered: park message %q: %w", c.Msg.UUID, err)
	logging.SequencesUnavailable.Write(p.config.Logger, err,
		logging.Fields{logging.Topic: message.SubscribeTopicFromCtx(c.Ctx)})
	return chain.OutcomeOf(chain.Requeued(errors.Join(err, failure)))
}

// held is the wait of a message whose sequence stands until a person decides.
const held = -1

// holds reports whether the sequence of a message stands, in place of a letter. A person cannot help a message that is
// invalid or has expired, and one without a key has none behind it.
func (p *Part) holds(c *chain.Call, d *sequence.Delivery, o chain.Outcome) bool {
	if !p.config.Hold || o.Next == chain.Done || c.Nacked() || c.Claimed() || c.Left(o) || c.Acked() || !d.IsKeyed() {
		return false
	}
	v := attempts.Of(p.config.Classifier, o.Why).Verdict
	return v.Class != classify.ClassInvalid && v.Class != classify.ClassDiscard && v.Reason != classify.ReasonExpired &&
		v.Reason != classify.ReasonMaxHops
}

// hold parks the message with its failure. When it is released it has its delays again, but for the first.
func (p *Part) hold(c *chain.Call, d *sequence.Delivery, why error) chain.Outcome {
	failure := attempts.Of(p.config.Classifier, why)
	c.Restore()
	placed := p.place(c, d, failure, func() *message.Message {
		return p.config.Queue.ForStage(c.Original(), failure, 1, time.Now(), time.Time{})
	}, held)
	if placed.Next == chain.Done {
		p.say(eventSequenceHeld, c, failure, logging.Fields{logging.Reason: attempts.Reason(failure.Verdict)})
	}
	return placed
}

// say writes to the log what becomes of a message that failed.
func (p *Part) say(event *logging.Event, c *chain.Call, failure *classify.Failure, fields logging.Fields) {
	topic, handler, class := message.SubscribeTopicFromCtx(c.Ctx), message.HandlerNameFromCtx(c.Ctx),
		failure.Verdict.Class.String()
	if line, due := event.At(p.config.Logger, topic, handler, class); due {
		fields[logging.Topic], fields[logging.Handler], fields[logging.Class] = topic, handler, class
		fields[logging.MessageID] = c.Msg.UUID
		line.Write(p.config.Queue.Cause(failure.Err), fields)
	}
}

// decided is the end of a message by what a person decided.
func decided(row *sequence.Row) error {
	text := fmt.Sprintf("%s decided to %s it: %s", row.By, row.Decision, row.Why)
	err := errors.New("ordered: " + text)
	if row.Decision == parked.Discard {
		return classify.Discard(err)
	}
	return classify.Permanent(err, classify.Reason(classify.ReasonSkipped), classify.Description(text))
}

// Stages and the delay store.
var (
	// each: Add the channel with Attach, before what copies messages.
	eventOrderUnknown = logging.ErrorEvent("order_unknown",
		"A message of an ordered handler has no place in an order; it is requeued")
	// each: nothing
	eventMessageParked = logging.InfoEvent("message_parked",
		"The handler failed; the message waits, and those of its key behind it")
	// each: Release, skip or discard the message: `redrive sequences`.
	eventSequenceHeld = logging.ErrorEvent("sequence_held",
		"A message failed for good; its key stands until a person decides")
)
