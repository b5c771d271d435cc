package stages

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/chain/traced"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/hold/recent"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
)

// send publishes the message to a stage. If the stage does not take it, send gives the message back, uncounted, for as
// long as the refusal can be an outage.
func (s *Stages) send(c *chain.Call, h *handler, failure *classify.Failure, number int,
	pause time.Duration) chain.Outcome {
	placing.Begin(c.PlaceContext(), c.Msg)
	if c.Gone() { // while it waited for its turn
		return chain.Gone(failure)
	}
	to, entry := h.byNumber[number-1], newEntry()
	err := s.sink.Do(c.PlaceContext(), c, func() error {
		return s.insist(c, func() error { return s.place(c, to, failure, number, pause, entry) })
	})
	if chain.IsAborted(err) { // it was held while the broker or store was unavailable, and the outage is logged
		return chain.Outcome{Next: chain.Requeue, Why: err}
	}
	if err != nil {
		return s.refused(c, to, failure, number,
			fmt.Errorf("stages: stage %d of handler %q, %q: %w", number, h.name, to.topic, err))
	}
	s.refusals.taken(to.topic)
	class := failure.Verdict.Class.String()
	if line, due := eventHandlerDelayed.At(s.config.Logger, h.topic, h.name, class, strconv.Itoa(number),
		to.topic); due {
		line.Write(hidden.Of(s.queue).Cause(failure.Err), logging.Fields{
			logging.Topic: h.topic, logging.Handler: h.name, logging.Class: class, logging.Stage: number,
			logging.StageTopic: to.topic, logging.Attempt: failure.Attempts, logging.Wait: pause,
			logging.MessageID: c.Msg.UUID,
		})
	}
	if s.config.Hooks.OnStage != nil {
		event := Waiting{c.Msg.UUID, h.name, h.topic, to.topic, number, pause,
			hidden.Of(s.queue).Shown(failure.Verdict), failure.Attempts}
		safecall.Hook(s.config.Logger, "stages.OnStage", func() { s.config.Hooks.OnStage(c.Ctx, event) })
	}
	return chain.Outcome{}
}

// stageAttempts is how often a message is offered to its stage.
const stageAttempts = 3

// insist calls try a few times, with waits between that end with the message. During an outage, outage.Dependency calls
// it again.
func (s *Stages) insist(c *chain.Call, try func() error) error {
	waits := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxElapsedTime(0))
	for attempt := 1; ; attempt++ {
		err := try()
		if err == nil || s.isTooLarge(err) || destination.IsRefused(err) || outage.Unavailable(err) ||
			attempt == stageAttempts {
			return err
		}
		if !timing.Wait(c.PlaceContext(), waits.NextBackOff()) {
			return err
		}
	}
}

// place publishes the message once. The entry is the same each time: if a publisher took the message and did not
// confirm it, both are one. The due time counts from now, so that a message that comes late into its stage is never
// early.
func (s *Stages) place(c *chain.Call, to *stageTopic, failure *classify.Failure, number int, pause time.Duration,
	entry string) error {
	if s.config.Store != nil {
		msg := hidden.Of(s.queue).ForStage(c.Original(), failure, number, time.Now().Add(pause), time.Time{})
		msg.Metadata.Set(poison.KeyRetryEntry, entry)
		return s.traced(c, to, failure, number, s.config.Store, msg, func() error {
			return safecall.Call("delay store", func() error {
				return delays.In(s.config.Store).Put(msg.Context(), to.topic, msg, pause)
			})
		})
	}
	if !to.subscribed.await(c.PlaceContext()) {
		return errNotSubscribed
	}
	now := time.Now()
	var holdUntil time.Time
	if holds := to.holds(); pause > holds {
		holdUntil = now.Add(holds)
	}
	msg := hidden.Of(s.queue).ForStage(c.Original(), failure, number, now.Add(pause), holdUntil)
	msg.Metadata.Set(poison.KeyRetryEntry, entry)
	return s.traced(c, to, failure, number, s.config.Publisher, msg, func() error {
		return safecall.Call("publisher", func() error { return s.publisher.Publish(to.topic, msg) })
	})
}

// letters has the hidden functions of package poison.
var letters = hidden.Of((*poison.Queue)(nil))

// packing is a publisher that leaves what a broker refuses to what is packed in the message.
type packing struct{ message.Publisher }

func (p packing) Publish(topic string, messages ...*message.Message) error {
	return letters.Publish(p.Publisher, topic, messages...)
}

// errNotSubscribed keeps a message from a topic without a subscriber: some pub/subs would lose it there.
var errNotSubscribed = errors.New("the stage's own handler has not subscribed yet")

// refused handles a message that its stage did not take, although the stage is not unavailable.
func (s *Stages) refused(c *chain.Call, to *stageTopic, failure *classify.Failure, number int,
	err error) chain.Outcome {
	fields := logging.Fields{
		logging.Handler: message.HandlerNameFromCtx(c.Ctx), logging.Topic: message.SubscribeTopicFromCtx(c.Ctx),
		logging.StageTopic: to.topic, logging.Stage: number,
		logging.MessageID: c.Msg.UUID,
	}
	condemned := outage.Unavailable(err) && c.PlaceContext().Err() == nil // others were seen to pass
	if s.hopeless(err) || c.Acked() || condemned || s.refusals.tooLong(to.topic, recent.Of(c)) {
		eventStageCondemned.Write(s.config.Logger, err, fields)
		return chain.Outcome{Next: chain.DeadLetter, Why: errors.Join(failure, err)}
	}
	eventStageRefused.Write(s.config.Logger, err, fields)
	return chain.OutcomeOf(chain.Requeued(errors.Join(err, failure)))
}

func (s *Stages) isTooLarge(err error) bool { return hidden.Of(s.queue).Classifier().IsTooLarge(err) }

// hopeless reports whether a stage will never take the message: it is too large, the publisher refuses its content, or
// the publisher panics. Any other error can be the broker's own trouble, such as a missing table or right.
func (s *Stages) hopeless(err error) bool {
	return s.isTooLarge(err) || destination.IsRefused(err) ||
		errors.As(err, new(*classify.PanicError))
}

const (
	// maxRefusal is how long a stage may refuse a message, which holds up those behind it when it is requeued. If the
	// stage took another message meanwhile, the message is refused for good. If the stage took none, there is an
	// outage, and one message is dead-lettered in that time.
	maxRefusal = 5 * time.Minute
	// forgotten is how long after its last refusal a message that comes again is a new one: refused ones come at once.
	forgotten = time.Minute
)

// refusals remembers since when stages refuse messages.
type refusals struct {
	mu    sync.Mutex
	since recent.Memory[time.Time]
	took  map[string]time.Time // by stage topic: when it last took a message
	let   map[string]time.Time // by stage topic: when a message was last dead-lettered
}

func newRefusals() refusals {
	return refusals{since: recent.For[time.Time](forgotten), took: make(map[string]time.Time),
		let: make(map[string]time.Time)}
}

// tooLong notes that a topic refused a message, and reports whether that has lasted too long.
func (r *refusals) tooLong(topic string, of recent.Message) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	first := r.since.Note(of, now)
	if first.IsZero() {
		*first = now
	}
	if now.Sub(*first) < maxRefusal {
		return false
	}
	if !r.took[topic].After(*first) && now.Sub(r.let[topic]) < maxRefusal {
		return false
	}
	r.since.Forget(of)
	r.let[topic] = now
	return true
}

// taken notes that a topic took a message.
func (r *refusals) taken(topic string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took[topic] = time.Now()
}

// traced publishes msg, which goes to a stage in place of the message of c, as an operation of the Tracer.
func (s *Stages) traced(c *chain.Call, to *stageTopic, failure *classify.Failure, number int, client any,
	msg *message.Message, publish func() error) error {
	if s.config.Tracer == nil {
		return publish()
	}
	op := &observe.Operation{
		Kind: observe.Stage, Topic: message.SubscribeTopicFromCtx(c.Ctx), Handler: message.HandlerNameFromCtx(c.Ctx),
		To: to.topic, Client: client, ID: c.ID(), Message: c.Msg, Stage: number, Attempts: failure.Attempts,
		Verdict: hidden.Of(s.queue).Shown(failure.Verdict), Redrives: poison.Read(msg).Redrive.Count, Parent: c.Trace,
		Earlier: c.Arrived(poison.KeyEarlierTrace),
	}
	by := traced.By{Tracer: s.config.Tracer, Logger: s.config.Logger}
	return by.PublishMasked(msg.Context(), op, func(err error) string {
		return hidden.Of(s.queue).Cause(err).Error()
	}, func(in context.Context, trace string) error {
		msg.SetContext(in)
		if trace != "" && len(trace) <= maxTrace {
			msg.Metadata.Set(poison.KeyEarlierTrace, trace)
		}
		return publish()
	})
}

// maxTrace bounds what a Tracer adds to a message.
const maxTrace = 1 << 10
