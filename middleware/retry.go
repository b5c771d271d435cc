package middleware

import (
	"errors"
	"maps"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/middleware/internal/intervals"
)

// link makes the type that embeds it a part of chains.
type link = chain.Link

// Retry calls a handler again at once, while the message is held, if another attempt can succeed. It belongs inside
// poison.Queue and outside of the idempotent receiver, so that each attempt has a transaction of its own.
type Retry struct {
	link
	config    RetryConfig
	policies  [classify.ClassAborted + 1]Policy
	toStage   [classify.ClassAborted + 1]bool // if there is one: the configuration does not say how often to try here
	postponed postponed
	timed     bool // a hook asks how long attempts take
	single    bool // the first attempt can be the last one

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
	r.link = chain.LinkOf(r.step)
	r.single = r.config.policy(classify.ClassTransient).Attempts == 1
	r.timed = config.Hooks.OnAttempt != nil || config.Hooks.OnRetry != nil
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
func (r *Retry) Budgets() []BudgetSpent {
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

func (r *Retry) step(next chain.Handler) chain.Handler {
	var mine atomic.Pointer[purse] // of the handler that this is the step of
	return func(c *chain.Call) (out []*message.Message, o chain.Outcome) {
		var entered time.Time // read only if a bound needs it: the clock is a good part of the happy path
		if r.config.MaxElapsed > 0 {
			entered = time.Now().Add(-c.Held())
		}
		var (
			purse  *purse
			budget *bucket
			took   time.Duration
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
		if r.timed || r.tells(c) {
			out, o, took = r.attempt(c, next)
		} else { // here, so that the happy path has one call less
			c.Attempts++
			out, o = next(c)
		}
		if o.Next == chain.Done {
			if r.timed {
				r.onAttempt(c, Attempt{Number: c.Attempts, Elapsed: took})
			}
			return out, o
		}
		if budget != nil {
			budget = purse.failed(c, budget)
		}
		return r.retry(c, next, o, took, budget, entered)
	}
}

// attempt calls the handler once. It returns how long that took, if a hook asks for the time.
func (r *Retry) attempt(c *chain.Call, next chain.Handler) ([]*message.Message, chain.Outcome, time.Duration) {
	c.Attempts++
	return r.call(c, next)
}

// tells reports whether this attempt differs from the first one at a new message, which costs nothing to tell.
func (r *Retry) tells(c *chain.Call) bool {
	return c.Failed > 0 || c.Reentry != nil || r.single || c.Redriven()
}

// telling returns next with the attempt in the message's context, for spillway.AttemptOf.
func (r *Retry) telling(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
		a := chain.Attempt{Failed: c.Failed, FirstFailed: c.FirstFailed, Last: r.isLast(c)}
		if c.Reentry != nil || c.Redriven() {
			a.Metadata = maps.Clone(c.Msg.Metadata)
		}
		before := c.Msg.Context()
		c.Msg.SetContext(chain.WithAttempt(before, a))
		out, o := next(c)
		c.Msg.SetContext(before)
		return out, o
	}
}

// isLast reports whether no attempt follows a transient error of this one, here or out of a stage.
func (r *Retry) isLast(c *chain.Call) bool {
	const class = classify.ClassTransient
	if c.Failed+1 < r.policies[class].Attempts && !(r.toStage[class] && c.HasStages()) {
		return false
	}
	return !c.HasNextStage(classify.Verdict{Class: class})
}

func (r *Retry) call(c *chain.Call, next chain.Handler) ([]*message.Message, chain.Outcome, time.Duration) {
	if r.tells(c) {
		next = r.telling(next)
	}
	if !r.timed {
		out, o := next(c)
		return out, o, 0
	}
	held, began := c.Held(), time.Since(started)
	out, o := next(c)
	return out, o, time.Since(started) - began - (c.Held() - held)
}

// started is what attempts are timed from: to read the monotonic clock alone costs a third of time.Now.
var started = time.Now()

// fromStage calls the handler for a message that comes out of a stage, once the budget has an attempt for it.
func (r *Retry) fromStage(c *chain.Call, next chain.Handler, budget *bucket,
	entered time.Time) ([]*message.Message, chain.Outcome) {
	charged, err := r.admit(c, budget)
	if err != nil {
		return nil, chain.Outcome{Next: chain.Requeue, Why: err}
	}
	budget.deposit() // now, because a message that waits can come several times
	out, o, took := r.attempt(c, next)
	if o.Next == chain.Done {
		charged.refund()
		r.onAttempt(c, Attempt{Number: c.Attempts, Elapsed: took})
		return out, o
	}
	if v := r.config.Classifier.Classify(o.Why); v.NotNow || !attempts.CanSucceed(v.Class) || c.Nacked() || c.Left(o) {
		charged.refund()
	}
	return r.retry(c, next, o, took, budget, entered)
}

// retry goes on after the first failure, until a part further out must decide: see chain.Next.
func (r *Retry) retry(c *chain.Call, next chain.Handler, o chain.Outcome, took time.Duration, budget *bucket,
	entered time.Time) ([]*message.Message, chain.Outcome) {
	var (
		failure classify.Failure
		started [classify.ClassAborted + 1]backoff.BackOff // each class goes on with its own
		out     []*message.Message
	)
	for o.Next != chain.Done {
		if c.Nacked() || c.Claimed() {
			return nil, o
		}
		if c.Left(o) {
			return nil, chain.Gone(o.Why)
		}
		verdict := r.config.Classifier.Classify(o.Why)
		if verdict.NotNow && !c.Acked() && !r.postponed.tooLong(c, notNowFor) {
			out, o, took = r.notNow(c, next, o, verdict)
			continue
		}
		attempts.Add(&failure, o.Why, verdict, time.Now())
		c.Failed, c.FirstFailed = failure.Attempts, failure.First
		attempt := Attempt{Number: failure.Attempts, Err: o.Why, Verdict: verdict, Elapsed: took}
		r.onAttempt(c, attempt)

		waits := &started[verdict.Class]
		if *waits == nil {
			*waits = r.policies[verdict.Class].Backoff.intervals().Start()
		}
		if o.Next != chain.Failed {
			return nil, chain.Outcome{Next: o.Next, Why: &failure}
		}
		if r.toStage[verdict.Class] && c.HasStages() {
			return nil, chain.Outcome{Next: chain.Stage, Why: &failure}
		}
		pause, ok := r.nextWait(c, &failure, *waits, entered)
		if !ok {
			return nil, chain.GaveUp(&failure)
		}
		if budget != nil {
			rest, toStage, err := r.spend(c, budget, &failure, pause)
			if err != nil {
				return nil, chain.Outcome{Next: chain.Requeue, Why: err}
			}
			if toStage {
				return nil, chain.Outcome{Next: chain.Stage, Why: &failure}
			}
			pause = rest
		}
		r.onRetry(c, attempt, pause)
		if !timing.Wait(c.WaitContext(), pause) {
			if c.Leaving() {
				return nil, chain.Gone(failure.Err)
			}
			return nil, chain.GaveUp(&failure)
		}
		c.Restore()
		out, o, took = r.attempt(c, next)
	}
	r.onAttempt(c, Attempt{Number: failure.Attempts + 1, Elapsed: took})
	return out, o
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
	if r.config.MaxElapsed > 0 && pause > r.config.MaxElapsed-(time.Since(entered)-c.Held()) {
		return 0, false
	}
	return pause, !intervals.Outlasts(c.WaitContext(), pause)
}

func (r *Retry) onAttempt(c *chain.Call, a Attempt) {
	if r.config.Hooks.OnAttempt != nil {
		a = r.shown(c, a)
		safecall.Hook(r.config.Logger, "middleware.OnAttempt", func() { r.config.Hooks.OnAttempt(c.Ctx, a) })
	}
}

// shown returns a as a hook may see it: with where it was, and its texts masked.
func (r *Retry) shown(c *chain.Call, a Attempt) Attempt {
	a.Topic, a.Handler = message.SubscribeTopicFromCtx(c.Ctx), message.HandlerNameFromCtx(c.Ctx)
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
	if line, due := eventHandlerRetried.At(r.config.Logger, topic, handler, class); due {
		line.Write(logging.CauseOf(a.Err, r.config.Privacy.Text), logging.Fields{
			logging.Topic: topic, logging.Handler: handler, logging.Class: class, logging.Attempt: a.Number,
			logging.Wait:      pause,
			logging.MessageID: c.ID(),
		})
	}
	if r.config.Hooks.OnRetry != nil {
		a = r.shown(c, a)
		safecall.Hook(r.config.Logger, "middleware.OnRetry", func() { r.config.Hooks.OnRetry(c.Ctx, a, pause) })
	}
}

// BudgetSpent is a budget that has no further attempt now, and the message that asked for one. A status has no message.
type BudgetSpent struct {
	// Handler is empty in the status of a budget that handlers share.
	Handler string `json:"handler"`
	// Traffic says whose budget is spent: TrafficLive, TrafficStage or TrafficRedriven.
	Traffic string `json:"traffic"`
	// Attempts counts the failed attempts since the message was delivered. It is 0 for a message that comes out of a
	// stage: it waits before its attempt.
	Attempts int `json:"-"`
	// Verdict is on the latest failure.
	Verdict classify.Verdict `json:"-"`
	// ToStage means that the message goes to its next stage. Otherwise it waits for the budget.
	ToStage bool `json:"-"`
}

// maxTransactionHold is how long a message waits in a transaction of its subscriber. Then it is requeued, and the
// subscriber waits without a transaction.
const maxTransactionHold = time.Second

// errBudgetSpent gives back a message out of a stage that waited in vain.
var errBudgetSpent = errors.New("the retry budget is spent; the message comes again")

// spend withdraws a further attempt for the message from b, or waits until it can. It returns what is left of pause
// then. It reports toStage if the message goes to its next stage, and returns an error if the message is requeued.
func (r *Retry) spend(c *chain.Call, b *bucket, f *classify.Failure,
	pause time.Duration) (rest time.Duration, toStage bool, err error) {
	began := time.Now()
	if _, ok := b.withdraw(began); ok {
		return pause, false, nil
	}
	toStage = c.HasNextStage(f.Verdict)
	r.spent(c, b, BudgetSpent{Traffic: b.traffic, Attempts: f.Attempts, Verdict: f.Verdict, ToStage: toStage})
	if toStage {
		return 0, true, nil
	}
	w, err := r.await(c, b, f.Err)
	rest = max(pause-time.Since(began), 0)
	if err == nil && intervals.Outlasts(c.WaitContext(), rest) {
		w.refund()
		err = chain.Requeued(f.Err)
	}
	return rest, false, err
}

// admit withdraws the attempt of a message that comes out of a stage, or waits until it can. A message that succeeds is
// refunded. So a stage does not go on at full speed with messages that fail again.
func (r *Retry) admit(c *chain.Call, b *bucket) (withdrawal, error) {
	if w, ok := b.withdraw(time.Now()); ok {
		return w, nil
	}
	r.spent(c, b, BudgetSpent{Traffic: b.traffic})
	return r.await(c, b, errBudgetSpent)
}

// await waits for a withdrawal from b. A message that was held for NotNowHold is requeued with err, uncounted. After
// notNowFor it goes on without a withdrawal, because each message must end.
func (r *Retry) await(c *chain.Call, b *bucket, err error) (w withdrawal, _ error) {
	ctx, began := c.WaitContext(), time.Now()
	defer func() { c.AddHeld(time.Since(began)) }()
	most := hold.Rest(ctx, r.config.NotNowHold, c.Held())
	defer hold.Holding(c, most, r.config.Logger)()
	if chain.TransactionOf(ctx) != nil {
		most = min(most, maxTransactionHold)
	}
	until := began.Add(most)
	for {
		now := time.Now()
		w, ok := b.withdraw(now)
		if ok || r.unaffordable.tooLong(c, notNowFor) {
			r.unaffordable.forget(c)
			return w, nil
		}
		rest := until.Sub(now)
		if rest <= 0 {
			if c.Acked() { // it cannot come again
				return withdrawal{}, nil
			}
			return withdrawal{}, chain.Requeued(err)
		}
		next := b.next(now)
		next += rand.N(next/4 + 1) // not all at one instant
		if !timing.Wait(ctx, min(next, rest)) {
			if c.Leaving() {
				return withdrawal{}, chain.Aborted(err)
			}
			return withdrawal{}, chain.Requeued(err)
		}
	}
}

// spent calls the hook and logs.
func (r *Retry) spent(c *chain.Call, b *bucket, event BudgetSpent) {
	handler, to := message.HandlerNameFromCtx(c.Ctx), "wait"
	event.Handler = handler
	if event.ToStage {
		to = "stage"
	}
	eventBudgetSpent.Write(r.config.Logger, nil,
		logging.Fields{logging.Handler: handler, logging.Traffic: b.traffic, logging.To: to})
	if r.config.Hooks.OnBudgetSpent != nil {
		safecall.Hook(r.config.Logger, "middleware.OnBudgetSpent", func() {
			r.config.Hooks.OnBudgetSpent(c.Ctx, event)
		})
	}
}

// A message fails.
var (
	// each: nothing
	eventHandlerRetried = logging.InfoEvent("handler_retried", "The handler failed and is called again")
	// each: Look why so many messages fail.
	eventBudgetSpent = logging.InfoEvent("budget_spent",
		"The retry budget is spent; messages go to their next stage, or wait")
)
