package middleware

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/attempts"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/internal/wait"
)

// Retry calls a handler again at once, while the message is held, if another attempt can succeed. It belongs inside
// poison.Queue and outside of the idempotent receiver, so that each attempt has a transaction of its own.
type Retry struct {
	config    RetryConfig
	policies  [classify.ClassAborted + 1]Policy
	toStage   [classify.ClassAborted + 1]bool // if there is one: the configuration does not say how often to try here
	postponed postponed

	purses       purses    // of a Budget
	unaffordable postponed // since when messages wait for it
}

// NewRetry returns a Retry, or an error that names the field of config that is wrong.
func NewRetry(config RetryConfig) (*Retry, error) {
	attemptsSet := config.Attempts != 0
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	r := &Retry{config: config, postponed: newPostponed(), unaffordable: newPostponed()}
	if config.Budget != nil {
		r.purses = purses{budget: *config.Budget, of: make(map[string]*purse)}
	}
	for i := range r.policies {
		class := classify.Class(i)
		r.policies[i] = config.policy(class)
		r.toStage[i] = !attemptsSet && attempts.CanSucceed(class) && config.PerClass[class].Attempts == 0
	}
	return r, nil
}

// Budgets returns the budgets that are spent now, by handler and kind of traffic. A further attempt would wait, or its
// message would go to its next stage. A budget that NewBudget made belongs to all its handlers, and its Handler is
// empty.
func (r *Retry) Budgets() []BudgetStatus {
	if r == nil || r.config.Budget == nil {
		return nil
	}
	return r.purses.spent(time.Now())
}

// Middleware retries h. When it gives up, it returns a *classify.Failure with the last error, the attempts and their
// history.
func (r *Retry) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(r.step)(h)
}

func init() { chain.Register((*Retry).step) }

func (r *Retry) step(next chain.Handler) chain.Handler {
	var mine atomic.Pointer[purse] // of the handler that this is the step of
	if r.config.OnAttempt != nil || r.config.OnRetry != nil {
		next = timed(next)
	}
	return func(c *chain.Call) ([]*message.Message, error) {
		var entered time.Time // read only if a bound needs it: the clock is a good part of the happy path
		if r.config.MaxElapsed > 0 {
			entered = time.Now().Add(-c.Held)
		}
		var (
			purse  *purse
			budget *bucket
		)
		if r.config.Budget != nil {
			if purse = mine.Load(); purse == nil {
				purse = r.purses.get(c)
				mine.Store(purse)
			}
			if budget = purse.of(c); budget == &purse.stage {
				return r.fromStage(c, next, budget, entered)
			}
			budget.deposit()
		}
		c.Attempts++
		out, err := next(c)
		if err == nil {
			if r.config.OnAttempt != nil {
				r.onAttempt(c, Attempt{Number: c.Attempts})
			}
			return out, nil
		}
		if budget != nil {
			budget = purse.failed(c, budget)
		}
		return r.retry(c, next, err, budget, entered)
	}
}

// fromStage calls the handler for a message that comes out of a stage, once the budget has an attempt for it.
func (r *Retry) fromStage(c *chain.Call, next chain.Handler, budget *bucket,
	entered time.Time) ([]*message.Message, error) {
	charged, err := r.admit(c, budget)
	if err != nil {
		return nil, err
	}
	budget.deposit() // now, because a message that waits can come several times
	c.Attempts++
	out, err := next(c)
	if err == nil {
		charged.refund()
		r.onAttempt(c, Attempt{Number: c.Attempts})
		return out, nil
	}
	if v := r.config.Classifier.Classify(err); v.NotNow || !attempts.CanSucceed(v.Class) || c.Nacked() || c.Aborted() {
		charged.refund()
	}
	return r.retry(c, next, err, budget, entered)
}

// retry goes on after the first failure.
func (r *Retry) retry(c *chain.Call, next chain.Handler, err error, budget *bucket,
	entered time.Time) ([]*message.Message, error) {
	var (
		failure classify.Failure
		started [classify.ClassAborted + 1]backoff.BackOff // each class goes on with its own
		out     []*message.Message
	)
	for err != nil {
		if c.Nacked() || c.Claimed() {
			return nil, err
		}
		verdict := r.config.Classifier.Classify(err)
		if c.Aborted() {
			return nil, c.Abort(err)
		}
		if verdict.NotNow && !c.Acked() && !r.postponed.tooLong(c, r.config.NotNowFor) {
			out, err = r.notNow(c, next, err, verdict)
			continue
		}
		attempts.Add(&failure, err, verdict, time.Now())
		attempt := Attempt{Number: failure.Attempts, Err: err, Verdict: verdict}
		r.onAttempt(c, attempt)

		waits := &started[verdict.Class]
		if *waits == nil {
			*waits = r.policies[verdict.Class].Backoff.start()
		}
		if c.Onward || r.toStage[verdict.Class] && c.Staged != nil && c.Staged(c) {
			return nil, &failure
		}
		ctx := c.WaitContext()
		pause, ok := r.nextWait(c, &failure, *waits, entered)
		if !ok {
			return nil, &failure
		}
		if budget != nil {
			var toStage bool
			if pause, toStage, err = r.spend(c, budget, &failure, pause); err != nil {
				return nil, err
			}
			if toStage {
				return nil, &failure
			}
		}
		r.onRetry(c, attempt, pause)
		if !wait.For(ctx, pause) {
			if c.Aborted() {
				return nil, c.Abort(failure.Err)
			}
			return nil, &failure
		}
		c.Restore()
		c.Attempts++
		out, err = next(c)
	}
	r.onAttempt(c, Attempt{Number: failure.Attempts + 1})
	return out, nil
}

// nextWait returns the wait before the next attempt. It reports false if there is none: the attempts are used up, or
// the message, the configuration or the error does not allow the wait.
func (r *Retry) nextWait(c *chain.Call, f *classify.Failure, waits backoff.BackOff,
	entered time.Time) (time.Duration, bool) {
	if f.Attempts >= r.policies[f.Verdict.Class].Attempts || f.Verdict.RetryAfter > r.config.MaxWait {
		return 0, false
	}
	pause := waits.NextBackOff()
	if pause == backoff.Stop {
		return 0, false
	}
	pause = max(pause, f.Verdict.RetryAfter)
	if r.config.MaxElapsed > 0 && pause > r.config.MaxElapsed-(time.Since(entered)-c.Held) {
		return 0, false
	}
	return pause, !outlasts(c.WaitContext(), pause)
}

// reserve is the time that waits keep free before the deadline of a message's context, to dead-letter the message in.
const reserve = time.Second

// maxRetryAfter is the longest retry-after that is waited for while a message is held.
const maxRetryAfter = 30 * time.Second

// outlasts reports whether a wait would not leave reserve free before the deadline of ctx. Nothing is added to the
// wait, which a strategy of the user can make so long that a sum overflows.
func outlasts(ctx context.Context, pause time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && pause > max(time.Until(deadline), 0)-reserve
}

// timed keeps how long a call took.
func timed(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, error) {
		held, began := c.Held, time.Since(started)
		out, err := next(c)
		c.Elapsed = time.Since(started) - began - (c.Held - held)
		return out, err
	}
}

// started is what attempts are timed from: to read the monotonic clock alone costs a third of time.Now.
var started = time.Now()

func (r *Retry) onAttempt(c *chain.Call, a Attempt) {
	if r.config.OnAttempt != nil {
		a = r.shown(c, a)
		safecall.Hook(r.config.Logger, "middleware.OnAttempt", func() { r.config.OnAttempt(c.Ctx, a) })
	}
}

// shown returns a as a hook may see it: with where and how long, and its texts masked.
func (r *Retry) shown(c *chain.Call, a Attempt) Attempt {
	a.Topic, a.Handler, a.Elapsed = message.SubscribeTopicFromCtx(c.Ctx), message.HandlerNameFromCtx(c.Ctx), c.Elapsed
	if a.Err != nil {
		a.Err = r.config.Privacy.Error(a.Err)
		a.Verdict.Reason, a.Verdict.Description = r.config.Privacy.Text(a.Verdict.Reason),
			r.config.Privacy.Text(a.Verdict.Description)
	}
	return a
}

func (r *Retry) onRetry(c *chain.Call, a Attempt, pause time.Duration) {
	topic, handler, class := message.SubscribeTopicFromCtx(c.Ctx), message.HandlerNameFromCtx(c.Ctx),
		a.Verdict.Class.String()
	if line, due := logging.HandlerRetried.At(r.config.Logger, topic, handler, class); due {
		line.Write(r.cause(a.Err), logging.Fields{
			logging.Topic: topic, logging.Handler: handler, logging.Class: class, logging.Attempt: a.Number, logging.Wait: pause,
			logging.MessageID: c.ID(),
		})
	}
	if r.config.OnRetry != nil {
		a = r.shown(c, a)
		safecall.Hook(r.config.Logger, "middleware.OnRetry", func() { r.config.OnRetry(c.Ctx, a, pause) })
	}
}

// maxMasked bounds the text of an error that is masked.
const maxMasked = 64 << 10

// cause returns an error with the text of err for a log line: bounded and masked.
func (r *Retry) cause(err error) error {
	return logging.Cause(r.config.Privacy.Text(boundedtext.Error(err, maxMasked)))
}
