package middleware

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/middleware/internal/intervals"
	"github.com/watermill-spillway/spillway/observe"
)

// RetryConfig configures a Retry. The zero value is useful.
type RetryConfig struct {
	// Attempts is how often the handler is called at most, the first time included. Default: 5, or 1 if the handler has
	// stages in the same chain.
	Attempts int
	// Backoff says how long to wait between attempts.
	Backoff Backoff
	// PerClass overrides Attempts and Backoff for errors of a class. Without an entry, permanent, invalid and discarded
	// errors are not retried.
	PerClass map[classify.Class]Policy
	// MaxElapsed bounds the time from the message's arrival here to the end of the last wait. Time in which a
	// breaker held the message does not count. 0 means no bound. If the subscriber has an ack deadline, set it below:
	// after the deadline the message is redelivered while the retry still goes on.
	MaxElapsed time.Duration
	// MaxWait is the longest retry-after that is waited for while the message is held. If an error asks for more, its
	// message goes on at once, to a stage or the dead letters. Default: 30 s.
	MaxWait time.Duration
	// NotNowHold is how long a message whose handler returns classify.NotNow is held at most before it is requeued.
	// Meanwhile it is handled again, after waits from 250 ms to 10 s. Set it below the time after which the broker
	// redelivers a message without an ack. It comes again uncounted for an hour. After that the error is a transient
	// failure. The hour starts with the first such error, and starts again after ten minutes without one. This process
	// remembers it, for 1,000 messages. Default: what the adapter allows (wmkafka's Subscriber 24 hours, wmamqp's 15
	// minutes), or 20 s.
	NotNowHold time.Duration
	// Budget bounds further attempts as a share of the handled messages. If it is spent, a message goes to its next
	// stage instead of being tried again in place. Without a next stage it waits, and is requeued after NotNowHold.
	// Messages out of stages wait before their attempt. None is dead-lettered because of the budget: after an hour a
	// message goes on without it. Default: none.
	Budget *Budget
	// Hooks are called after events. Default: none.
	Hooks RetryHooks
	// Shared: Classifier judges the errors. Logger receives one Info line per retry, with its cause, masked by Privacy.
	observe.Shared
}

// RetryHooks are called in the goroutine of the message, and must be quick. A panic of a hook is logged and changes
// nothing.
type RetryHooks struct {
	// OnAttempt is called after every attempt, successes too. It is also called if the attempt ended before the
	// handler, at a receiver that absorbed a duplicate for example. It is not called if the message went away.
	OnAttempt func(context.Context, Attempt)
	// OnRetry is called before the wait for the next attempt.
	OnRetry func(context.Context, Attempt, time.Duration)
	// OnBudgetSpent is called if Budget has no further attempt for a message, before the message goes to its next stage
	// or waits.
	OnBudgetSpent func(context.Context, BudgetSpent)
}

// Policy says how errors of one class are retried.
type Policy struct {
	// Attempts is how often the handler is called at most. 1 means no retry. Default: RetryConfig.Attempts.
	Attempts int
	// Backoff says how long to wait. Default: RetryConfig.Backoff.
	Backoff Backoff
}

// Attempt is one call of the handler.
type Attempt struct {
	// Topic and Handler are the topic that the handler is subscribed to, and its name. For a message out of a stage
	// they are those of the live handler. They are empty outside of a router.
	Topic, Handler string
	// Elapsed is how long the call took, with all parts inside of Retry. The time in which a breaker held the
	// message does not count.
	Elapsed time.Duration
	// Number counts from 1.
	Number int
	// Err is nil for a success.
	Err     error
	Verdict classify.Verdict
}

func (c *RetryConfig) setDefaults() {
	if c.Attempts == 0 {
		c.Attempts = 5
	}
	c.Backoff.intervals().SetDefaults()
	if c.MaxWait == 0 {
		c.MaxWait = intervals.MaxRetryAfter
	}
	c.Logger = logging.Wrap(c.Logger, c.Privacy.Text)
}

func (c *RetryConfig) validate() error {
	if c.Attempts < 1 {
		return fmt.Errorf("middleware: RetryConfig.Attempts is %d: it includes the first attempt and must be at least 1",
			c.Attempts)
	}
	if c.MaxElapsed < 0 || c.MaxWait < 0 {
		return fmt.Errorf("middleware: RetryConfig.MaxElapsed (%s) and MaxWait (%s) must not be negative", c.MaxElapsed,
			c.MaxWait)
	}
	if c.NotNowHold < 0 {
		return fmt.Errorf("middleware: RetryConfig.NotNowHold is %s: it must not be negative", c.NotNowHold)
	}
	if c.Budget != nil {
		if err := c.Budget.validate("RetryConfig.Budget"); err != nil {
			return err
		}
	}
	for class, policy := range c.PerClass {
		if class >= classify.ClassAborted {
			return fmt.Errorf("middleware: RetryConfig.PerClass[%s]: a message that went away is requeued and never retried "+
				"here; remove the entry", class)
		}
		if policy.Attempts < 0 {
			return fmt.Errorf("middleware: RetryConfig.PerClass[%s].Attempts is %d: it must not be negative", class,
				policy.Attempts)
		}
		policy.Backoff.intervals().SetDefaults()
		if err := policy.Backoff.intervals().Validate(fmt.Sprintf("RetryConfig.PerClass[%s].Backoff", class)); err != nil {
			return err
		}
	}
	return c.Backoff.intervals().Validate("RetryConfig.Backoff")
}

// policy returns what RetryConfig says of a class.
func (c *RetryConfig) policy(class classify.Class) Policy {
	own, ok := c.PerClass[class]
	if own.Backoff.intervals().IsSet() {
		own.Backoff.intervals().SetDefaults()
	} else {
		own.Backoff = c.Backoff
	}
	switch {
	case own.Attempts != 0:
	case !ok && (class == classify.ClassPermanent || class == classify.ClassInvalid || class == classify.ClassDiscard):
		own.Attempts = 1
	default:
		own.Attempts = c.Attempts
	}
	return own
}

// Backoff says how long to wait between attempts: a time drawn from 0 to an interval that grows, so that messages that
// failed together do not come back together. That is the full jitter of Marc Brooker, "Exponential Backoff And Jitter",
// AWS Architecture Blog, 2015, which loads a recovering service least. The zero value draws from 100 ms, doubling, at
// most 10 s.
type Backoff struct {
	// Initial is the first interval. Default: 100 ms.
	Initial time.Duration
	// Max bounds every interval. Default: 10 s, or Initial if that is longer.
	Max time.Duration
	// Multiplier times an interval is the next interval. Default: 2.
	Multiplier float64
	// New returns a strategy of your own, which replaces all fields above. It is called once for each failing message
	// and class of error. If the strategy returns backoff.Stop, the retries end. Default: none.
	New func() backoff.BackOff
}

// intervals is what the waits are made of.
func (b *Backoff) intervals() *intervals.Backoff { return (*intervals.Backoff)(b) }
