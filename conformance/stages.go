package conformance

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"

	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
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

func (v visit) stage() int { return poison.Inside().StageOf(v.Message).Number }

func (v visit) due() time.Time { return poison.Inside().StageOf(v.Message).DueAt }

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
		if err := fail(poison.Inside().StageOf(msg).Number, msg); err != nil {
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

func (t took) stage() deadletter.Stage { return poison.Inside().StageOf(t.Message) }

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
