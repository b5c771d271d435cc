package conformance

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

var errNotYet = errors.New("not yet")

// staged gives the channel stages with these delays, in topics, and one attempt in each.
func (b *bench) staged(delays ...time.Duration) func(*spillway.Config) {
	b.Helper()
	pub, sub := b.stageTopics()
	return func(c *spillway.Config) {
		c.Retry.Attempts = 1
		c.Stages = &stages.Config{Publisher: pub, Stages: stages.Delays(delays...), Subscriber: sub}
	}
}

// stageTopics are the publisher and the subscribers of the stages of one service.
func (b *bench) stageTopics() (message.Publisher, func(topic, group string) (message.Subscriber, error)) {
	b.Helper()
	if b.target.Stages != nil {
		return b.target.Stages(b.T, b.group+"-stages")
	}
	return b.publisher(), b.ownSubscribers
}

// ownSubscribers gives each stage a subscriber of its own.
func (b *bench) ownSubscribers(_, group string) (message.Subscriber, error) {
	return b.target.Subscriber(b.T, group), nil
}

// stored has the messages wait in a store in place of topics.
func stored(store *delay.Store) func(*spillway.Config) {
	return func(c *spillway.Config) { c.Stages.Store = store }
}

// delays is a store for messages that wait: where the broker's are, or in a file of its own.
func (b *bench) delays() *delay.Store {
	b.Helper()
	if b.target.Delays != nil {
		return b.target.Delays(b.T)
	}
	return b.ownDelays()
}

func (b *bench) ownDelays() *delay.Store { return delaysIn(b.T, b.openFile(b.path+".delays")) }

func delaysIn(t testing.TB, db *sql.DB) *delay.Store {
	t.Helper()
	store, err := delay.NewStore(context.Background(), db, "conformance")
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// startStaged is start for a handler with stages.
func (b *bench) startStaged(ch *spillway.Channel, handle message.HandlerFunc,
	more ...func(*message.Router)) (stop func()) {
	b.Helper()
	router := b.router()
	ch.Attach(router)
	for _, f := range more {
		f(router)
	}
	b.addStaged(ch, router, handle)
	return b.run(router)
}

func (b *bench) addStaged(ch *spillway.Channel, router *message.Router, handle message.HandlerFunc) *message.Handler {
	b.Helper()
	h, err := ch.Stages().AddHandler(router, handlerName, b.topic, b.target.Subscriber(b.T, b.group), b.outs,
		b.target.Publisher(b.T), handle)
	if err != nil {
		b.Fatal(err)
	}
	return h
}

// stageTopic is the one for a delay, as it is named by default; for 0 a store's.
func (b *bench) stageTopic(delay time.Duration) string {
	return b.target.Naming.StageTopic(naming.Source{Topic: b.topic, Handler: handlerName, Delay: delay})
}

// visit is one invocation of a handler. Its times are of the wall clock, by which messages are due.
type visit struct {
	*message.Message
	begun, ended time.Time
}

func (v visit) stage() int { return inside.Poison.StageOf(v.Message).Number }

func (v visit) due() time.Time { return inside.Poison.StageOf(v.Message).DueAt }

// journal keeps the visits of a handler in their order.
type journal struct {
	mu     sync.Mutex
	visits []visit
}

func (j *journal) add(msg *message.Message, begun time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.visits = append(j.visits, visit{msg, begun, time.Now().Round(0)})
}

// of are the visits of an id, or all.
func (j *journal) of(id string) (visits []visit) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, v := range j.visits {
		if v.UUID == id || id == "" {
			visits = append(visits, v)
		}
	}
	return visits
}

// noting is a handler that fails with what fail returns, applies the message where that is nil, and keeps a journal.
func (b *bench) noting(j *journal, fail func(stage int, msg *message.Message) error) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		begun, came := time.Now().Round(0), keep(msg)
		defer j.add(came, begun)
		if err := fail(inside.Poison.StageOf(msg).Number, msg); err != nil {
			return nil, err
		}
		return nil, b.apply(msg)
	}
}

// wantNeverEarly checks that no message was handled in a stage before the stage's delay had passed since it failed.
func (b *bench) wantNeverEarly(j *journal, delays ...time.Duration) {
	b.Helper()
	failed := map[string]map[int]time.Time{} // the first time, where a broker delivers again
	for _, v := range j.of("") {
		if failed[v.UUID] == nil {
			failed[v.UUID] = map[int]time.Time{}
		}
		n := v.stage()
		if before, ok := failed[v.UUID][n-1]; n > 0 && (!ok || v.begun.Sub(before) < delays[n-1]) {
			b.Errorf("%q was handled in stage %d %s after it had failed (there: %t), and is to wait %s", v.UUID, n,
				v.begun.Sub(before), ok, delays[n-1])
		}
		if _, ok := failed[v.UUID][n]; !ok {
			failed[v.UUID][n] = v.ended
		}
	}
}

// took is a message as a stage topic got it.
type took struct {
	*message.Message
	topic string
	at    time.Time // when it was handed to the publisher
}

func (t took) stage() deadletter.Stage { return inside.Poison.StageOf(t.Message) }

// ledger keeps what was published to stages.
type ledger struct {
	mu   sync.Mutex
	took []took
}

// keep puts the ledger before the publisher of stages.
func (l *ledger) keep(c *spillway.Config) {
	c.Stages.Publisher = refusing{c.Stages.Publisher, func(topic string, msg *message.Message) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.took = append(l.took, took{keep(msg), topic, time.Now().Round(0)})
		return nil
	}}
}

func (l *ledger) all() []took {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.took)
}

// byID are the stages that each message went to, in order.
func (l *ledger) byID() map[string][]took {
	all := map[string][]took{}
	for _, t := range l.all() {
		all[t.UUID] = append(all[t.UUID], t)
	}
	return all
}

// numbered are n ids.
func numbered(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, prefix+"-"+string(rune('a'+i/26))+string(rune('a'+i%26)))
	}
	return ids
}

// afterStage has f called for each message that went to a stage.
func afterStage(f func(context.Context, stages.Waiting)) func(*spillway.Config) {
	return func(c *spillway.Config) { c.Stages.Hooks.OnStage = f }
}

// Feature R5: what fails for the moment comes back after each delay, and never early; what is behind it does not wait;
// what no stage helps is set aside with its whole history.
func (b *bench) stagedRetry() {
	b.variant("comes back", func(b *bench) { b.comesBack() })
	b.variant("live goes on", (*bench).liveResumed)
}

// liveResumed has messages wait for an hour. Those behind take effect at once.
func (b *bench) liveResumed() {
	var j journal
	waiting, good := numbered("waiting", 3), numbered("good", 10)
	b.startStaged(b.channel(b.staged(time.Hour)), b.noting(&j, func(_ int, msg *message.Message) error {
		if slices.Contains(waiting, msg.UUID) {
			return errNotYet
		}
		return nil
	}))
	b.ids(slices.Concat(waiting, good)...)
	b.untilApplied(good...)
	b.wantOnce(good...)
	b.wantNoLetters()
}

func (b *bench) comesBack(change ...func(*spillway.Config)) {
	delays := []time.Duration{200 * time.Millisecond, time.Second}
	hopeless, flaky, good := numbered("hopeless", 3), numbered("flaky", 5), numbered("good", 10)
	var j journal
	b.startStaged(b.channel(append([]func(*spillway.Config){b.staged(delays...)}, change...)...),
		b.noting(&j, func(stage int, msg *message.Message) error {
			switch {
			case strings.HasPrefix(msg.UUID, "hopeless"):
				return classify.Transient(errNever)
			case strings.HasPrefix(msg.UUID, "flaky") && stage < 2:
				return errNotYet
			}
			return nil
		}))
	b.ids(slices.Concat(hopeless, flaky, good)...)
	b.untilApplied(append(flaky, good...)...)
	b.untilPlaced(3)
	b.wantOnce(append(flaky, good...)...)
	b.wantNeverEarly(&j, delays...)
	for _, id := range append(flaky, hopeless...) {
		if last := j.of(id)[len(j.of(id))-1]; last.stage() != 2 || last.Metadata[poison.KeyAttempts] != "2" {
			b.Errorf("%q came the last time in stage %d, after %s attempts", id, last.stage(), last.Metadata[poison.KeyAttempts])
		}
	}
	for _, l := range b.letters(b.dlq(), 3) {
		f := l.Failure
		if !slices.Contains(hopeless, l.Original.UUID) || f.Reason != classify.ReasonTransientMaxRetries || f.Attempts != 3 ||
			len(f.History) != 3 {
			b.Errorf("set aside: %q with reason %q after %d attempts, of which it tells %v", l.Original.UUID, f.Reason,
				f.Attempts, f.History)
		}
		if waits := f.LastFailedAt.Sub(f.FirstFailedAt); waits < delays[0]+delays[1] {
			b.Errorf("%q failed first at %s and last at %s", l.Original.UUID, f.FirstFailedAt, f.LastFailedAt)
		}
	}
}

// Feature R6: how long each message waits is drawn by lot, and never below the delay nor above delay and jitter.
func (b *bench) stagedJitter() {
	const delay, jitter, n = 200 * time.Millisecond, 0.5, 40
	const most = delay + time.Duration(jitter*float64(delay))
	var j journal
	var l ledger
	b.startStaged(b.channel(b.staged(delay), l.keep, func(c *spillway.Config) { c.Stages.Jitter = jitter }),
		b.noting(&j, func(stage int, _ *message.Message) error {
			if stage == 0 {
				return errNotYet
			}
			return nil
		}))
	ids := numbered("id", n)
	b.ids(ids...)
	b.untilApplied(ids...)
	b.wantOnce(ids...)
	b.wantNeverEarly(&j, delay)
	shortest, longest := time.Hour, time.Duration(0)
	for id, tooks := range l.byID() {
		due, failed := tooks[0].stage().DueAt, j.of(id)[0].ended
		if wait := due.Sub(failed); wait < delay || due.Sub(tooks[0].at) > most {
			b.Errorf("%q is due %s after it failed, and is to wait %s to %s", id, wait, delay, most)
		}
		shortest, longest = min(shortest, due.Sub(tooks[0].at)), max(longest, due.Sub(tooks[0].at))
		for _, v := range j.of(id) {
			if v.stage() == 1 && v.begun.Before(due) {
				b.Errorf("%q was handled at %s, and due at %s", id, v.begun, due)
			}
		}
	}
	if longest-shortest < most-delay-(most-delay)/2 {
		b.Errorf("all of %d messages wait %s to %s: nothing is drawn", n, shortest, longest)
	}
}

// Feature C5: what will not get better goes to no stage; an error that asks for time gets the stage that gives it, or
// is set aside where none may.
func (b *bench) stagesByClass() {
	delays := []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond}
	var j journal
	var l ledger
	b.startStaged(b.channel(b.staged(delays...), l.keep),
		b.noting(&j, func(stage int, msg *message.Message) error {
			kind, _, _ := strings.Cut(msg.UUID, "-")
			switch {
			case kind == "permanent":
				return classify.Permanent(errNever)
			case kind == "invalid":
				return classify.Invalid(errNever)
			case kind == "discard":
				return classify.Discard(errNever)
			case kind == "patient":
				return classify.Transient(errNotYet, classify.RetryAfter(25*time.Hour))
			case kind == "limited" && stage == 0: // longer than the first stage
				return classify.Transient(errNotYet, classify.RetryAfter(250*time.Millisecond))
			case kind == "slow" && stage == 0: // longer than any
				return classify.Transient(errNotYet, classify.RetryAfter(700*time.Millisecond))
			case kind == "unknown" && stage == 0:
				return errNotYet
			}
			return nil
		}))
	b.ids("permanent", "invalid", "discard", "patient", "limited", "slow", "unknown", "good")
	b.untilApplied("limited", "slow", "unknown", "good")
	b.untilPlaced(3)
	b.until("one is discarded", func() bool { return b.discarded.Load() >= 1 })
	b.wantOnce("limited", "slow", "unknown", "good")
	want := map[string][]int{"limited": {2}, "slow": {3}, "unknown": {1}}
	for id, tooks := range l.byID() {
		var stages []int
		for _, t := range tooks {
			if stages = append(stages, t.stage().Number); t.topic != b.stageTopic(delays[t.stage().Number-1]) {
				b.Errorf("%q went to stage %d in %q", id, t.stage().Number, t.topic)
			}
		}
		if stages = slices.Compact(stages); !slices.Equal(stages, want[id]) { // where it cannot be held it goes round
			b.Errorf("%q went to the stages %v instead of %v", id, stages, want[id])
		}
		delete(want, id)
	}
	if len(want) > 0 {
		b.Errorf("to no stage went %v", want)
	}
	for id, after := range map[string]time.Duration{"limited": 250 * time.Millisecond, "slow": 700 * time.Millisecond} {
		if v := j.of(id); len(v) > 1 && v[1].begun.Sub(v[0].ended) < after {
			b.Errorf("%q came back after %s", id, v[1].begun.Sub(v[0].ended))
		}
	}
	letters := append(b.letters(b.dlq(), 2), b.letter(b.invalid()))
	for _, l := range letters {
		if !slices.Contains([]string{"permanent", "patient", "invalid"}, l.Original.UUID) || l.Failure.Attempts != 1 {
			b.Errorf("set aside: %q after %d attempts", l.Original.UUID, l.Failure.Attempts)
		}
	}
}

// Feature V1b: letters enter at the first stage, apart from live traffic and at once, and go through the stages anew.
func (b *bench) redrivenIntoStage() {
	var j journal
	ch := b.channel(b.staged(shortStage, 2*shortStage))
	b.startStaged(ch, b.noting(&j, func(stage int, msg *message.Message) error {
		switch {
		case poison.Read(msg).Redrive.Count == 0:
			return classify.Permanent(errNever)
		case stage == 0: // where it entered it has not waited yet
			return errNotYet
		}
		return nil
	}))
	ids := numbered("id", 3)
	b.ids(ids...)
	b.untilPlaced(3)
	var l ledger
	entering := &spillway.Config{Stages: &stages.Config{Publisher: b.live}}
	l.keep(entering)
	report := b.drainThrough(entering.Stages.Publisher, b.dlq(), 3, func(c *redrive.DrainTopicConfig) {
		c.ReentryTopic = ch.Stages().ReentryTopic
	})
	if report.Redriven != 3 {
		b.Errorf("%+v", report)
	}
	b.untilApplied(ids...)
	b.wantOnce(ids...)
	for _, t := range l.all() {
		if t.topic != b.stageTopic(shortStage) {
			b.Errorf("%q was redriven to %q", t.UUID, t.topic)
		}
	}
	for _, id := range ids {
		visits := j.of(id)
		if last := visits[len(visits)-1]; last.Metadata[poison.KeyAttempts] != "1" || last.stage() == 0 {
			b.Errorf("%q was handled in stage %d after %q attempts since its redrive", id, last.stage(),
				last.Metadata[poison.KeyAttempts])
		}
	}
}
