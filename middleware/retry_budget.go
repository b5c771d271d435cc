package middleware

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing/intervals"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

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
		if !wait.For(ctx, min(next, rest)) {
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
	if line, due := logging.BudgetSpent.At(r.config.Logger, handler, b.traffic, to); due {
		line.Write(nil, logging.Fields{logging.Handler: handler, logging.Traffic: b.traffic, logging.To: to})
	}
	if r.config.Hooks.OnBudgetSpent != nil {
		safecall.Hook(r.config.Logger, "middleware.OnBudgetSpent", func() {
			r.config.Hooks.OnBudgetSpent(c.Ctx, event)
		})
	}
}
