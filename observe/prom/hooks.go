package prom

import (
	"context"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/observe/internal/first"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Observe is called by spillway.New, for Metrics in Config.Observers. It puts the hooks of the metrics before those of
// config. Parts that config leaves out stay out.
func (m *Metrics) Observe(config *spillway.Config) error {
	m.hooks(config)
	m.observed.Store(true)
	return nil
}

var _ spillway.Observer = (*Metrics)(nil)

// hooks puts the hooks of the metrics before those of config.
func (m *Metrics) hooks(config *spillway.Config) {
	retry := &config.Retry.Hooks
	retry.OnAttempt = first.Ours(m.attempt, retry.OnAttempt)
	retry.OnRetry = first.Ours2(m.retry, retry.OnRetry)
	retry.OnBudgetSpent = first.Ours(m.budgetSpent, retry.OnBudgetSpent)
	if config.Stages != nil {
		s := &config.Stages.Hooks
		s.OnStage = first.Ours(m.stage, s.OnStage)
		s.OnReentry = first.Ours(m.reentry, s.OnReentry)
	}

	queue := &config.Queue.Hooks
	queue.OnDeadLetter = first.Ours(m.deadLetter, queue.OnDeadLetter)
	queue.OnDiscard = first.Ours(m.discard, queue.OnDiscard)
	queue.OnPublishError = first.Ours2(m.refusal(m.refused), queue.OnPublishError)
	queue.OnUnplaced = first.Ours2(m.refusal(m.unplaced), queue.OnUnplaced)
	config.Outputs.OnOutputError = first.Ours(m.outputError, config.Outputs.OnOutputError)
	if config.CrashLimit != nil {
		limit := &config.CrashLimit.Hooks
		limit.OnExceeded = first.Ours(m.crashLimit, limit.OnExceeded)
		limit.OnUnfinished = first.Ours(m.crashed, limit.OnUnfinished)
	}
	if config.Receiver != nil {
		m.receiver(&config.Receiver.Hooks)
	}
	if purge := config.Purge; purge != nil {
		purge.OnRun = first.Ours2(func(ctx context.Context, n int, err error) {
			m.purged.WithLabelValues(ofKeys).Add(float64(n))
			if ctx.Err() == nil {
				m.ran(ofKeys, err)
			}
		}, purge.OnRun)
		m.expect(ofKeys, purge.Every)
	}
	if retention := config.Retention; retention != nil {
		retention.OnRun = first.Ours2(func(_ context.Context, n int, err error) {
			m.purged.WithLabelValues(ofLetters).Add(float64(n))
			m.ran(ofLetters, err)
		}, retention.OnRun)
		m.expect(ofLetters, time.Hour)
	}
	if store, ok := decorated.As[*letters.Store](config.Publisher); ok {
		m.store.Store(store)
	}
	if config.Breaker != nil {
		hooks := &config.Breaker.Hooks
		theirs := hooks.OnChange
		hooks.OnChange = func(c breaker.Change) {
			m.breaker.WithLabelValues(m.labels.value("handler", c.Handler), string(c.To)).Inc()
			if theirs != nil {
				theirs(c)
			}
		}
		hooks.OnWaited = first.Ours2(m.wait, hooks.OnWaited)
	}
}

func (m *Metrics) receiver(receiver *idempotency.Hooks) {
	receiver.OnApplied = first.Ours(m.consumer(m.applied), receiver.OnApplied)
	receiver.OnDuplicate = first.Ours(m.consumer(m.duplicates), receiver.OnDuplicate)
	receiver.OnRequeue = first.Ours(m.consumer(m.putBack), receiver.OnRequeue)
	receiver.OnLeaseLost = first.Ours(m.consumer(m.leasesLost), receiver.OnLeaseLost)
	stale, theirs := m.consumer(m.stale), receiver.OnStale
	receiver.OnStale = func(ctx context.Context, key idempotency.Key, version, applied int64) {
		stale(ctx, key)
		if theirs != nil {
			theirs(ctx, key, version, applied)
		}
	}
}

// Redrives returns hooks for redrive.NewHandler, Drain and DrainTopic that count, and then call hooks.
func (m *Metrics) Redrives(hooks redrive.Hooks) redrive.Hooks {
	count := func(vec *prometheus.CounterVec, topic string) {
		vec.WithLabelValues(m.labels.value("topic", topic)).Inc()
	}
	hooks.OnRedrive = first.Ours2(func(_ context.Context, _ poison.Letter, topic string) {
		count(m.redriven, topic)
	}, hooks.OnRedrive)
	hooks.OnRefused = first.Ours2(func(_ context.Context, l poison.Letter, _ string) {
		count(m.redrivesRefused, l.Origin.Topic)
	}, hooks.OnRefused)
	hooks.OnQuarantine = first.Ours(func(_ context.Context, l poison.Letter) {
		count(m.quarantined, l.Origin.Topic)
	}, hooks.OnQuarantine)
	hooks.OnParked = first.Ours2(func(_ context.Context, l poison.Letter, _ error) {
		count(m.parked, l.DeadLetterTopic)
	}, hooks.OnParked)
	hooks.OnPublishError = first.Ours2(func(_ context.Context, l poison.Letter, _ error) {
		count(m.publishErrors, l.Origin.Topic)
	}, hooks.OnPublishError)
	return hooks
}

func (m *Metrics) attempt(_ context.Context, a middleware.Attempt) { m.attempts.observe(&a) }

func (m *Metrics) retry(_ context.Context, a middleware.Attempt, _ time.Duration) {
	m.retries.WithLabelValues(m.labels.value("topic", a.Topic), m.labels.value("handler", a.Handler), "process",
		"").Inc()
}

func (m *Metrics) budgetSpent(ctx context.Context, b middleware.BudgetSpent) {
	to := "wait"
	if b.ToStage {
		to = "stage"
	}
	m.budget.WithLabelValues(m.labels.value("handler", message.HandlerNameFromCtx(ctx)), b.Traffic, to).Inc()
}

func (m *Metrics) stage(_ context.Context, w stages.Waiting) {
	m.retries.WithLabelValues(m.labels.value("topic", w.Topic), m.labels.value("handler", w.Handler), "stage",
		strconv.Itoa(w.Stage)).Inc()
}

// maxLate bounds what a due time can add to a sum: it comes with a message.
const maxLate = 24 * time.Hour

func (m *Metrics) reentry(_ context.Context, r stages.Reentry) {
	topic, handler, stage := m.labels.value("topic", r.Topic), m.labels.value("handler",
		r.Handler), strconv.Itoa(r.Stage)
	m.reentries.WithLabelValues(topic, handler, stage).Inc()
	if r.Stage > 0 {
		m.lateness.WithLabelValues(topic, handler, stage).Observe(min(r.Late, maxLate).Seconds())
	}
}

func (m *Metrics) deadLetter(_ context.Context, l poison.Letter) {
	labels := []string{m.labels.value("topic", l.Origin.Topic), m.labels.value("handler", l.Origin.Handler),
		l.Failure.Class.String(), m.labels.value("reason", l.Failure.Reason)}
	m.deadLetters.WithLabelValues(labels...).Inc()
	if l.Redrive.Count > 0 {
		m.failedAgain.WithLabelValues(labels...).Inc()
	}
}

func (m *Metrics) discard(_ context.Context, l poison.Letter) {
	m.discarded.WithLabelValues(m.labels.value("topic", l.Origin.Topic), m.labels.value("handler", l.Origin.Handler),
		m.labels.value("reason", l.Failure.Reason)).Inc()
}

func (m *Metrics) refusal(vec *prometheus.CounterVec) func(context.Context, poison.Letter, error) {
	return func(_ context.Context, l poison.Letter, _ error) {
		vec.WithLabelValues(m.labels.value("topic", l.Origin.Topic), m.labels.value("handler", l.Origin.Handler)).Inc()
	}
}

func (m *Metrics) outputError(ctx context.Context, _ error) {
	m.outputs.WithLabelValues(m.labels.value("topic", message.SubscribeTopicFromCtx(ctx)),
		m.labels.value("handler", message.HandlerNameFromCtx(ctx))).Inc()
}

func (m *Metrics) crashLimit(_ context.Context, e crashlimit.Unfinished) {
	m.exceeded.WithLabelValues(m.labels.value("handler", e.Consumer)).Inc()
}

func (m *Metrics) crashed(_ context.Context, u crashlimit.Unfinished) {
	m.unfinished.WithLabelValues(m.labels.value("handler", u.Consumer)).Inc()
}

func (m *Metrics) wait(ctx context.Context, waited time.Duration, _ bool) {
	m.waited.WithLabelValues(m.labels.value("handler", message.HandlerNameFromCtx(ctx))).Observe(waited.Seconds())
}

func (m *Metrics) consumer(vec *prometheus.CounterVec) func(context.Context, idempotency.Key) {
	return func(_ context.Context, k idempotency.Key) {
		vec.WithLabelValues(m.labels.value("consumer", k.Consumer)).Inc()
	}
}

// The values of the label purge.
const ofKeys, ofLetters = "keys", "letters"

// expect says that a purge is set up. Its first run is due.
func (m *Metrics) expect(purge string, every time.Duration) {
	if every == 0 {
		every = time.Hour // the default of both
	}
	m.purged.WithLabelValues(purge)
	m.purgeFailures.WithLabelValues(purge)
	m.purgeEvery.WithLabelValues(purge).Set(every.Seconds())
	m.purgedAt.WithLabelValues(purge).SetToCurrentTime()
}

func (m *Metrics) ran(purge string, err error) {
	if err != nil {
		m.purgeFailures.WithLabelValues(purge).Inc()
		return
	}
	m.purgedAt.WithLabelValues(purge).SetToCurrentTime()
}
