package stages

import (
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/recent"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/internal/wait"
	"github.com/watermill-spillway/spillway/poison"
)

// Middleware sends what fails in h to the next stage, where h is a handler that was added here; of any other the errors
// pass. It belongs inside poison.Queue and outside of Retry, whose RetryConfig.Attempts says what is tried at once, while
// the message is held.
func (s *Stages) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(s.step)(h)
}

func init() { chain.Register((*Stages).step) }

func (s *Stages) step(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, error) {
		if !s.passed.Load() {
			s.passed.Store(true)
		}
		if c.Reentry != nil {
			c.Reentry.Met = true
			if c.Reentry.Foreign {
				return nil, errForeign
			}
		}
		c.Later = s.knows
		out, err := next(c)
		if err != nil {
			return nil, s.later(c, err)
		}
		return out, nil
	}
}

var errForeign = classify.Permanent(errors.New("stages: the message waits for another handler in a stage topic that both have, which nobody said is shared: " +
	"name stage topics after the handler too, as PerHandler does, or set Config.SharedTopics"))

func (s *Stages) handlerOf(c *chain.Call) *handler {
	s.mu.RLock()
	defer s.mu.RUnlock()
	h := s.handlers[message.HandlerNameFromCtx(c.Ctx)]
	if h == nil || h.topic != message.SubscribeTopicFromCtx(c.Ctx) { // a handler of the same name in another router
		return nil
	}
	return h
}

// later returns nil when the message waits for its next attempt, and what is to be done with it now otherwise.
func (s *Stages) later(c *chain.Call, err error) error {
	if c.Nacked() || c.Claimed() || c.Aborted() {
		return err
	}
	h := s.handlerOf(c)
	if h == nil {
		return err
	}
	failure := s.config.Classifier.Failure(err)
	if !failure.Verdict.Class.Retryable() {
		return failure
	}
	after := 0
	if c.Reentry != nil {
		after = c.Reentry.Stage
	}
	number, pause, ok := s.next(after, failure.Verdict.RetryAfter)
	if !ok {
		if asked := failure.Verdict.RetryAfter; asked > s.config.MaxDelay {
			s.config.Logger.Info("An error asks for a longer wait than Config.MaxDelay; its message is set aside",
				watermill.LogFields{"handler": h.name, "message_uuid": boundedtext.Text(c.Msg.UUID, 200), "retry_after": asked, "max_delay": s.config.MaxDelay})
		}
		return failure
	}
	c.Restore()
	return s.send(c, h, failure, number, pause)
}

// hopeless reports whether a stage has this error for a message each time: it is too large, refused for what it carries, or a
// publisher panics over it. What else a publisher says may be its own trouble, a missing table or right, even if a handler's error of
// that kind is permanent.
func (s *Stages) hopeless(err error) bool {
	return s.queue.IsTooLarge(err) || errors.Is(err, poison.ErrRefused) || errors.Is(err, errMisnamed) || errors.As(err, new(*classify.PanicError))
}

// send places the message in a stage. A stage that does not take it gives it back, uncounted, for as long as the refusal
// can be an outage.
func (s *Stages) send(c *chain.Call, h *handler, failure *classify.Failure, number int, pause time.Duration) error {
	to := h.byNumber[number-1]
	err := s.guard.Do(c.WaitContext(), c, func() error {
		return s.insist(c, func() error { return s.place(c, to, failure, number, pause) })
	})
	if chain.GaveBack(err) { // the guard held it while the stage's broker or store was away, and logs the outage
		return err
	}
	if err != nil {
		return s.refused(c, to, failure, number, fmt.Errorf("stages: stage %d of handler %q, %q: %w", number, h.name, to.topic, err))
	}
	s.refusals.taken(to.topic)
	if !logging.IsSilent(s.config.Logger) {
		s.config.Logger.Info("The handler failed; the message waits for its next attempt", watermill.LogFields{
			"handler": h.name, "topic": h.topic, "stage_topic": to.topic, "stage": number, "wait": pause, "class": failure.Verdict.Class.String(),
			"attempts": failure.Attempts, "message_uuid": boundedtext.Text(c.Msg.UUID, 200), "cause": s.queue.Cause(failure.Err).Error(),
		})
	}
	if s.config.OnStage != nil {
		event := Waiting{c.Msg.UUID, h.name, h.topic, to.topic, number, pause, failure.Verdict, failure.Attempts}
		safecall.Hook(s.config.Logger, "stages.OnStage", func() { s.config.OnStage(c.Ctx, event) })
	}
	return nil
}

// refused is for a message that its stage did not take, though the stage is not away.
func (s *Stages) refused(c *chain.Call, to *stageTopic, failure *classify.Failure, number int, err error) error {
	h := message.HandlerNameFromCtx(c.Ctx)
	fields := watermill.LogFields{
		"handler": h, "topic": message.SubscribeTopicFromCtx(c.Ctx), "stage_topic": to.topic, "stage": number,
		"message_uuid": boundedtext.Text(c.Msg.UUID, 200),
	}
	condemned := outage.Away(err) && c.WaitContext().Err() == nil // the guard saw others pass
	if s.hopeless(err) || c.Acked() || condemned || s.refusals.tooLong(to.topic, recent.Of(c)) {
		s.config.Logger.Error("A message cannot go into its stage; it is set aside", err, fields)
		return errors.Join(failure, err)
	}
	s.config.Logger.Error("No stage took the message; it is given back", err, fields)
	return c.PutBack(errors.Join(err, failure))
}

// place tells the time anew for each try, so that a message is never early for one that came late into its stage.
func (s *Stages) place(c *chain.Call, to *stageTopic, failure *classify.Failure, number int, pause time.Duration) error {
	if s.config.Store != nil {
		msg := s.queue.ForStage(c.Original(), failure, poison.Stage{Number: number, DueAt: time.Now().Add(pause)})
		return safecall.Call("delay store", func() error { return s.config.Store.Put(msg.Context(), to.topic, msg, pause) })
	}
	if !to.subscribed.await(c.WaitContext()) {
		return errNotSubscribed
	}
	now := time.Now()
	stage := poison.Stage{Number: number, DueAt: now.Add(pause)}
	if pause > to.holds {
		stage.HoldUntil = now.Add(to.holds)
	}
	msg := s.queue.ForStage(c.Original(), failure, stage)
	if to.foreign(msg) {
		return errMisnamed
	}
	return safecall.Call("publisher", func() error { return s.config.Publisher.Publish(to.topic, msg) })
}

// errNotSubscribed keeps a message from a topic that nobody has subscribed to yet: some pub/subs would lose it there.
var errNotSubscribed = errors.New("the stage's own handler has not subscribed yet")

// errMisnamed keeps a message from a shared topic out of which nobody would take it.
var errMisnamed = errors.New("QueueConfig.Origin tells another topic or handler than the router has, by which handlers that share the stage topic would pass")

// stageAttempts is how often a message is offered to its stage.
const stageAttempts = 3

// insist tries some times, with waits between that the end of the message ends. What is away the guard tries again.
func (s *Stages) insist(c *chain.Call, try func() error) error {
	waits := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxElapsedTime(0))
	for attempt := 1; ; attempt++ {
		err := try()
		if err == nil || s.queue.IsTooLarge(err) || errors.Is(err, poison.ErrRefused) || outage.Away(err) || attempt == stageAttempts {
			return err
		}
		if !wait.For(c.WaitContext(), waits.NextBackOff()) {
			return err
		}
	}
}
