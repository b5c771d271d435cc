package middleware

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/recent"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/internal/wait"
)

// RetryConfig configures a Retry. The zero value is useful.
type RetryConfig struct {
	// Attempts is how often the handler is invoked at the most, the first time included. Default: 5, or 1 where the handler
	// has stages in the same chain.
	Attempts int
	// Backoff says how long to wait between attempts.
	Backoff Backoff
	// PerClass gives a class attempts and waits of its own. Without an entry, permanent, invalid and discarded errors
	// are not retried, and all others are as Attempts and Backoff say.
	PerClass map[classify.Class]Policy
	// MaxElapsed bounds the time from the message's arrival here to the end of the last wait. 0 means no bound. Set it
	// below the ack deadline of the subscriber, where there is one: beyond that the message is redelivered meanwhile.
	MaxElapsed time.Duration
	// MaxWait is the longest retry-after that is waited for while the message is held. An error that asks for more
	// goes on at once to what lies further out. Default: 30 s.
	MaxWait time.Duration
	// Reserve is the time kept free before the deadline of the message's context, to set the message aside in.
	// Default: 1 s.
	Reserve time.Duration
	// NotNowFor is how long a message may come again uncounted, whose handler says classify.NotNow. After that the error is a
	// transient failure. The time counts from the first such error; it is remembered by this process alone, for 1,000
	// messages, and begins anew after ten minutes without one. Default: 1 hour.
	NotNowFor time.Duration
	// NotNowHold is how long such a message is held at most, and handled again after waits that grow from 250 ms to 10 s, before it
	// is given back. Keep it below the time after which the broker delivers a message again that was not acked. Default: 20 s, or
	// 15 minutes for messages of wmamqp's Subscriber, whose broker counts what is given back.
	NotNowHold time.Duration
	// Classifier judges the errors. Default: marks and built-in knowledge.
	Classifier *classify.Classifier
	// Logger receives one Info line per retry, with its cause. Payloads are never logged. Default: none, or in a spillway.Channel
	// the router's.
	Logger watermill.LoggerAdapter
	// MaskText changes the text of an error before it is logged. Default: none, or in a spillway.Channel QueueConfig.MaskText. If it
	// panics the text is withheld.
	MaskText func(text string) string
	// OnAttempt is told of every attempt, successes too, and those that ended further in before the handler: at a receiver that
	// absorbs a duplicate, or whose store is away. It is not told of one whose message went away. A hook that panics is logged.
	OnAttempt func(context.Context, Attempt)
	// OnRetry is told before the wait for the next attempt.
	OnRetry func(context.Context, Attempt, time.Duration)
}

// Policy is how errors of one class are retried.
type Policy struct {
	// Attempts is how often the handler is invoked at the most. 0 means as RetryConfig.Attempts says, 1 no retry.
	Attempts int
	// Backoff says how long to wait; its zero value means as RetryConfig.Backoff says.
	Backoff Backoff
}

// Attempt is one invocation of the handler.
type Attempt struct {
	// Number counts from 1.
	Number int
	// Err is nil for a success.
	Err     error
	Verdict classify.Verdict
}

// Retry invokes a handler again while its errors may pass with time. It stands inside poison.Queue and outside of the
// idempotent receiver, so that each attempt has a transaction of its own.
type Retry struct {
	config   RetryConfig
	policies [classify.ClassAborted + 1]Policy
	leaves   [classify.ClassAborted + 1]bool // to a stage, where there is one: nobody said how often to try here
	later    postponed
}

// NewRetry returns a Retry, or an error that names the field of config that makes no sense.
func NewRetry(config RetryConfig) (*Retry, error) {
	unsaid := config.Attempts == 0
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	r := &Retry{config: config, later: postponed{of: recent.For[postponement](notNowForgotten)}}
	for class := range r.policies {
		policy := Policy{Attempts: config.Attempts, Backoff: config.Backoff}
		switch classify.Class(class) {
		case classify.ClassPermanent, classify.ClassInvalid, classify.ClassDiscard:
			policy.Attempts = 1
		}
		if own, ok := config.PerClass[classify.Class(class)]; ok {
			policy.Attempts = config.Attempts
			if own.Attempts != 0 {
				policy.Attempts = own.Attempts
			}
			if own.Backoff.isSet() {
				policy.Backoff = own.Backoff
				policy.Backoff.setDefaults()
			}
		}
		r.policies[class] = policy
		r.leaves[class] = unsaid && classify.Class(class).Retryable() && config.PerClass[classify.Class(class)].Attempts == 0
	}
	return r, nil
}

func (c *RetryConfig) setDefaults() {
	if c.Attempts == 0 {
		c.Attempts = 5
	}
	c.Backoff.setDefaults()
	if c.NotNowFor == 0 {
		c.NotNowFor = time.Hour
	}
	if c.MaxWait == 0 {
		c.MaxWait = 30 * time.Second
	}
	if c.Reserve == 0 {
		c.Reserve = time.Second
	}
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
}

func (c *RetryConfig) validate() error {
	if c.Attempts < 1 {
		return fmt.Errorf("middleware: RetryConfig.Attempts is %d: it counts the first attempt too and must be at least 1", c.Attempts)
	}
	if c.MaxElapsed < 0 || c.MaxWait < 0 || c.Reserve < 0 {
		return fmt.Errorf("middleware: RetryConfig.MaxElapsed (%s), MaxWait (%s) and Reserve (%s) must not be negative", c.MaxElapsed, c.MaxWait, c.Reserve)
	}
	if c.NotNowFor < 0 || c.NotNowHold < 0 {
		return fmt.Errorf("middleware: RetryConfig.NotNowFor (%s) and NotNowHold (%s) must not be negative", c.NotNowFor, c.NotNowHold)
	}
	for class, policy := range c.PerClass {
		if class >= classify.ClassAborted {
			return fmt.Errorf("middleware: RetryConfig.PerClass[%s]: a message that went away is given back, never retried here", class)
		}
		if policy.Attempts < 0 {
			return fmt.Errorf("middleware: RetryConfig.PerClass[%s].Attempts is %d", class, policy.Attempts)
		}
		policy.Backoff.setDefaults()
		if err := policy.Backoff.validate(fmt.Sprintf("RetryConfig.PerClass[%s].Backoff", class)); err != nil {
			return err
		}
	}
	return c.Backoff.validate("RetryConfig.Backoff")
}

// Middleware retries h. The error it gives up with is a *classify.Failure that holds the last error and the story.
func (r *Retry) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(r.step)(h)
}

func init() { chain.Register((*Retry).step) }

func (r *Retry) step(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, error) {
		var entered time.Time // read only where a bound needs it: the clock is a good part of the happy path
		if r.config.MaxElapsed > 0 {
			entered = time.Now()
		}
		c.Attempts++
		out, err := next(c)
		if err == nil {
			if r.config.OnAttempt != nil {
				r.onAttempt(c, Attempt{Number: c.Attempts})
			}
			return out, nil
		}
		return r.retry(c, next, err, entered)
	}
}

// retry goes on after the first failure.
func (r *Retry) retry(c *chain.Call, next chain.Handler, err error, entered time.Time) ([]*message.Message, error) {
	var (
		failure classify.Failure
		started [classify.ClassAborted + 1]backoff.BackOff // a class that comes again goes on with its own
	)
	for {
		if c.Nacked() || c.Claimed() {
			return nil, err
		}
		verdict := r.config.Classifier.Classify(err)
		if c.Aborted() {
			return nil, c.Abort(err)
		}
		if verdict.NotNow && !c.Acked() && !r.later.tooLong(c, r.config.NotNowFor) {
			var out []*message.Message
			if out, err = r.notNow(c, next, err, verdict); err == nil {
				r.onAttempt(c, Attempt{Number: failure.Attempts + 1})
				return out, nil
			}
			continue
		}
		failure.Add(err, verdict, time.Now())
		r.onAttempt(c, Attempt{failure.Attempts, err, verdict})

		policy := &r.policies[verdict.Class]
		waits := &started[verdict.Class]
		if *waits == nil {
			*waits = policy.Backoff.start()
		}
		if r.leaves[verdict.Class] && c.Later != nil && c.Later(c) {
			return nil, &failure
		}
		ctx := c.WaitContext()
		pause, ok := r.nextWait(ctx, &failure, policy, *waits, entered)
		if !ok {
			return nil, &failure
		}
		r.onRetry(c, Attempt{failure.Attempts, err, verdict}, pause)
		if !wait.For(ctx, pause) {
			if c.Aborted() {
				return nil, c.Abort(err)
			}
			return nil, &failure
		}
		c.Restore()
		c.Attempts++
		var out []*message.Message
		if out, err = next(c); err == nil {
			r.onAttempt(c, Attempt{Number: failure.Attempts + 1})
			return out, nil
		}
	}
}

// nextWait returns the wait before the next attempt, or false where there is none: the attempts are used up, or the
// wait would outlast what the message, the configuration or the error allows.
func (r *Retry) nextWait(ctx context.Context, f *classify.Failure, policy *Policy, waits backoff.BackOff, entered time.Time) (time.Duration, bool) {
	if f.Attempts >= policy.Attempts || f.Verdict.RetryAfter > r.config.MaxWait {
		return 0, false
	}
	pause := waits.NextBackOff()
	if pause == backoff.Stop {
		return 0, false
	}
	pause = max(pause, f.Verdict.RetryAfter)
	if r.config.MaxElapsed > 0 && pause > r.config.MaxElapsed-time.Since(entered) {
		return 0, false
	}
	return pause, !outlasts(ctx, pause, r.config.Reserve)
}

// outlasts tells whether a wait would not leave reserve free before the deadline of ctx. A strategy may ask for any
// wait, so nothing is added to it: sums overflow.
func outlasts(ctx context.Context, pause, reserve time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && pause > max(time.Until(deadline), 0)-reserve
}

func (r *Retry) onAttempt(c *chain.Call, a Attempt) {
	if r.config.OnAttempt != nil {
		safecall.Hook(r.config.Logger, "middleware.OnAttempt", func() { r.config.OnAttempt(c.Ctx, a) })
	}
}

func (r *Retry) onRetry(c *chain.Call, a Attempt, pause time.Duration) {
	if !logging.IsSilent(r.config.Logger) {
		r.config.Logger.Info("The handler failed and is tried again", watermill.LogFields{
			"attempt": a.Number, "class": a.Verdict.Class.String(), "wait": pause, "handler": message.HandlerNameFromCtx(c.Ctx),
			"topic": boundedtext.Text(message.SubscribeTopicFromCtx(c.Ctx), 200), "message_uuid": boundedtext.Text(c.ID(), 200), "cause": r.cause(a.Err),
		})
	}
	if r.config.OnRetry != nil {
		safecall.Hook(r.config.Logger, "middleware.OnRetry", func() { r.config.OnRetry(c.Ctx, a, pause) })
	}
}

// maxMasked bounds what is masked of an error's text.
const maxMasked = 64 << 10

// cause returns the text of err as a log line may have it: bounded and masked.
func (r *Retry) cause(err error) string {
	text := boundedtext.Error(err, maxMasked)
	if mask := r.config.MaskText; mask != nil {
		masked := "[withheld: the mask panicked]"
		_ = safecall.Call("middleware.MaskText", func() error { masked = mask(text); return nil })
		text = masked
	}
	return logging.Cause(text).Error()
}
