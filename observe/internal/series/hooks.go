package series

import (
	"context"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// Values are those of a series' labels, in their order. An array costs no allocation.
type Values [4]string

// Add adds a number to a counter, or seconds to a histogram.
type Add func(ctx context.Context, by float64, values Values)

// maxLate bounds what a due time can add to a sum: it comes with a message.
const maxLate = 24 * time.Hour

// Channel puts hooks that feed the series before those of config. Parts that config leaves out stay out. to returns
// what adds to a series. Attempts are not among them: they come with each message, and each package has its own way.
func Channel(config *spillway.Config, to func(*Series) Add) {
	retry, addRetry, addBudget := &config.Retry.Hooks, to(retries), to(budget)
	retry.OnRetry = Before2(func(ctx context.Context, a middleware.Attempt, _ time.Duration) {
		addRetry(ctx, 1, Values{a.Topic, a.Handler, "process", ""})
	}, retry.OnRetry)
	retry.OnBudgetSpent = Before(func(ctx context.Context, b middleware.BudgetSpent) {
		goesTo := "wait"
		if b.ToStage {
			goesTo = "stage"
		}
		addBudget(ctx, 1, Values{message.HandlerNameFromCtx(ctx), b.Traffic, goesTo})
	}, retry.OnBudgetSpent)
	if config.Stages != nil {
		hooks, addReentry, addLateness := &config.Stages.Hooks, to(reentries), to(lateness)
		hooks.OnStage = Before(func(ctx context.Context, w stages.Waiting) {
			addRetry(ctx, 1, Values{w.Topic, w.Handler, "stage", strconv.Itoa(w.Stage)})
		}, hooks.OnStage)
		hooks.OnReentry = Before(func(ctx context.Context, r stages.Reentry) {
			stage := strconv.Itoa(r.Stage)
			addReentry(ctx, 1, Values{r.Topic, r.Handler, stage})
			if r.Stage > 0 {
				addLateness(ctx, min(r.Late, maxLate).Seconds(), Values{r.Topic, r.Handler, stage})
			}
		}, hooks.OnReentry)
	}

	queue, addLetter, addAgain, addDiscarded := &config.Queue.Hooks, to(deadLetters), to(failedAgain), to(discarded)
	queue.OnDeadLetter = Before(func(ctx context.Context, l poison.Letter) {
		addLetter(ctx, 1, Values{l.Origin.Topic, l.Origin.Handler, l.Failure.Class.String(), l.Failure.Reason})
		if l.Redrive.Count > 0 {
			addAgain(ctx, 1, Values{l.Origin.Topic, l.Origin.Handler, l.Failure.Class.String(), l.Failure.Reason})
		}
	}, queue.OnDeadLetter)
	queue.OnDiscard = Before(func(ctx context.Context, l poison.Letter) {
		addDiscarded(ctx, 1, Values{l.Origin.Topic, l.Origin.Handler, l.Failure.Reason})
	}, queue.OnDiscard)
	refusal := func(s *Series) func(context.Context, poison.Letter, error) {
		add := to(s)
		return func(ctx context.Context, l poison.Letter, _ error) {
			add(ctx, 1, Values{l.Origin.Topic, l.Origin.Handler})
		}
	}
	queue.OnPublishError = Before2(refusal(refused), queue.OnPublishError)
	queue.OnUnplaced = Before2(refusal(unplaced), queue.OnUnplaced)
	addOutput := to(outputs)
	config.Outputs.OnOutputError = Before(func(ctx context.Context, _ error) {
		addOutput(ctx, 1, Values{message.SubscribeTopicFromCtx(ctx), message.HandlerNameFromCtx(ctx)})
	}, config.Outputs.OnOutputError)

	if config.CrashLimit != nil {
		crash := func(s *Series) func(context.Context, crashlimit.Unfinished) {
			add := to(s)
			return func(ctx context.Context, u crashlimit.Unfinished) { add(ctx, 1, Values{u.Consumer}) }
		}
		hooks := &config.CrashLimit.Hooks
		hooks.OnExceeded = Before(crash(exceeded), hooks.OnExceeded)
		hooks.OnUnfinished = Before(crash(unfinished), hooks.OnUnfinished)
	}
	if config.Receiver != nil {
		receiver(&config.Receiver.Hooks, to)
	}
	if config.Purge != nil {
		config.Purge.OnRun = Before2(purge(PurgeOfKeys, to), config.Purge.OnRun)
	}
	if config.Retention != nil {
		config.Retention.OnRun = Before2(purge(PurgeOfLetters, to), config.Retention.OnRun)
	}
	if config.Breaker != nil {
		hooks, addChange, addWaited := &config.Breaker.Hooks, to(breakerChanges), to(waited)
		hooks.OnChange = Before1(func(c breaker.Change) {
			addChange(context.Background(), 1, Values{c.Handler, string(c.To)})
		}, hooks.OnChange)
		hooks.OnWaited = Before2(func(ctx context.Context, waited time.Duration, _ bool) {
			addWaited(ctx, waited.Seconds(), Values{message.HandlerNameFromCtx(ctx)})
		}, hooks.OnWaited)
	}
}

func receiver(hooks *idempotency.Hooks, to func(*Series) Add) {
	consumer := func(s *Series) func(context.Context, idempotency.Key) {
		add := to(s)
		return func(ctx context.Context, k idempotency.Key) { add(ctx, 1, Values{k.Consumer}) }
	}
	hooks.OnApplied = Before(consumer(applied), hooks.OnApplied)
	hooks.OnDuplicate = Before(consumer(duplicates), hooks.OnDuplicate)
	hooks.OnRequeue = Before(consumer(requeue), hooks.OnRequeue)
	hooks.OnLeaseLost = Before(consumer(leasesLost), hooks.OnLeaseLost)
	skipped, theirs := consumer(stale), hooks.OnStale
	hooks.OnStale = func(ctx context.Context, key idempotency.Key, version, applied int64) {
		skipped(ctx, key)
		if theirs != nil {
			theirs(ctx, key, version, applied)
		}
	}
}

// purge returns a hook for the runs of a purge. A run that a stop of the router interrupts has not failed.
func purge(of string, to func(*Series) Add) func(context.Context, int, error) {
	purged, failures := to(Purged), to(PurgeFailures)
	return func(ctx context.Context, n int, err error) {
		purged(ctx, float64(n), Values{of})
		if err != nil && ctx.Err() == nil {
			failures(ctx, 1, Values{of})
		}
	}
}

// Redrives returns hooks for redrive.NewHandler, Drain and DrainTopic that feed the series, and then call hooks.
func Redrives(hooks redrive.Hooks, to func(*Series) Add) redrive.Hooks {
	toRedriven, toRefused, toQuarantined := to(redriven), to(redrivesRefused), to(quarantined)
	toParked, toErrors := to(parked), to(publishErrors)
	hooks.OnRedrive = Before2(func(ctx context.Context, _ poison.Letter, topic string) {
		toRedriven(ctx, 1, Values{topic})
	}, hooks.OnRedrive)
	hooks.OnRefused = Before2(func(ctx context.Context, l poison.Letter, _ string) {
		toRefused(ctx, 1, Values{l.Origin.Topic})
	}, hooks.OnRefused)
	hooks.OnQuarantine = Before(func(ctx context.Context, l poison.Letter) {
		toQuarantined(ctx, 1, Values{l.Origin.Topic})
	}, hooks.OnQuarantine)
	hooks.OnParked = Before2(func(ctx context.Context, l poison.Letter, _ error) {
		toParked(ctx, 1, Values{l.DeadLetterTopic})
	}, hooks.OnParked)
	hooks.OnPublishError = Before2(func(ctx context.Context, l poison.Letter, _ error) {
		toErrors(ctx, 1, Values{l.Origin.Topic})
	}, hooks.OnPublishError)
	return hooks
}

// Before1 returns a hook that calls ours, and theirs after it if there is one.
func Before1[T any](ours, theirs func(T)) func(T) {
	if theirs == nil {
		return ours
	}
	return func(v T) {
		ours(v)
		theirs(v)
	}
}

// Before is Before1 for hooks with a context.
func Before[T any](ours, theirs func(context.Context, T)) func(context.Context, T) {
	if theirs == nil {
		return ours
	}
	return func(ctx context.Context, v T) {
		ours(ctx, v)
		theirs(ctx, v)
	}
}

// Before2 is Before for hooks with two values.
func Before2[T, U any](ours, theirs func(context.Context, T, U)) func(context.Context, T, U) {
	if theirs == nil {
		return ours
	}
	return func(ctx context.Context, v T, u U) {
		ours(ctx, v, u)
		theirs(ctx, v, u)
	}
}
