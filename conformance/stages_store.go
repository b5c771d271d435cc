package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
)

// Feature R8: as R5, with the messages in a table; there each waits as long as its error asks for, whatever the others
// do; where the source is in the same database, the row is in the transaction that consumes the message.
func (b *bench) delayStore() {
	store := b.delays()
	b.variant("comes back", func(b *bench) { b.comesBack(stored(store)) })
	b.variant("in due order", func(b *bench) { b.dueOrder(store) })
	if b.target.Database != nil {
		b.variant("in one transaction", func(b *bench) { b.delayedWithAck(store) })
	}
}

// dueOrder has messages wait for what their errors ask: the last for the shortest time.
func (b *bench) dueOrder(store *delay.Store) {
	const n, step = 5, 300 * time.Millisecond
	const first = 10 * step // the shortest wait, so that all are stored before the first is due
	ids := numbered("id", n)
	after := func(id string) time.Duration { return first + step*time.Duration(n-1-slices.Index(ids, id)) }
	var j journal
	waits := make(chan time.Duration, 10*n)
	var put sync.Map // when each message was in the store, or all but committed to it
	b.startStaged(b.channel(b.staged(step), stored(store), afterStage(func(_ context.Context, s stages.Waiting) {
		put.Store(s.ID, time.Now())
		waits <- s.Wait
	})),
		b.noting(&j, func(stage int, msg *message.Message) error {
			if stage == 0 {
				return classify.Transient(errNotYet, classify.RetryAfter(after(msg.UUID)))
			}
			return nil
		}))
	b.ids(ids...)
	b.untilApplied(ids...)
	b.wantOnce(ids...)
	const clocks = 50 * time.Millisecond // between ours, which says when a message is due, and the database's
	// a message that is stored later than this before another one is taken may come behind that
	const commits = 8 * step
	var back []string
	var due []int64
	var last visit
	for _, v := range j.of("") {
		if v.stage() == 0 {
			if wait := <-waits; wait%step != 0 || wait < 2*step {
				b.Errorf("a wait of %s, and the errors ask for whole steps of %s", wait, step)
			}
			continue
		}
		at, _ := put.Load(v.UUID)
		was, _ := at.(time.Time)
		inTime := len(back) > 0 && was.Add(commits).Before(last.begun)
		late := v.begun.Sub(v.due()) > time.Second // and not overtaken on the way from the store to the handler
		due = append(due, v.due().UnixNano())
		if back = append(back, v.UUID); v.due().IsZero() || inTime && late && v.due().Before(last.due().Add(-clocks)) {
			b.Errorf("%q, due at %s, came behind %q, due at %s", v.UUID, v.due(), last.UUID, last.due())
		}
		last = v
		if wait := v.begun.Sub(j.of(v.UUID)[0].ended); wait < after(v.UUID) {
			b.Errorf("%q came back after %s instead of %s", v.UUID, wait, after(v.UUID))
		}
	}
	if slices.Equal(back, ids) && !slices.IsSorted(due) { // on a busy machine they may fail so late that they are not due in reverse
		b.Errorf("came back as %q, as they were published", back)
	}
}

// delayedWithAck gives a message back after it was put into the store: that is undone with everything else. The next
// time no reader sees it there before the message is acked.
func (b *bench) delayedWithAck(store *delay.Store) {
	const wait = 300 * time.Millisecond
	waiting := func() (n int) {
		kept, err := hidden.Of(store).Waiting(b.Context())
		if err != nil {
			b.Error(err)
		}
		for _, k := range kept {
			if k.Topic == b.stageTopic(0) {
				n += k.Messages
			}
		}
		return n
	}
	var j journal
	var given atomic.Int32
	var visible atomic.Int32
	ch := b.channel(b.staged(wait), stored(store), afterStage(func(context.Context, stages.Waiting) {
		visible.Add(int32(waiting()))
	}),
		withoutReceiver) // which would absorb what came of the first time
	requeue := func(router *message.Router) {
		router.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				out, err := next(msg)
				if err == nil && given.Add(1) == 1 {
					return nil, errNotNow
				}
				return out, err
			}
		})
	}
	router := b.router()
	requeue(router) // outermost
	ch.Attach(router)
	b.addStaged(ch, router, b.noting(&j, func(stage int, _ *message.Message) error {
		if stage == 0 {
			return errNotYet
		}
		return nil
	}))
	b.run(router)
	b.ids("delayed")
	b.untilApplied("delayed")
	b.until("nothing waits", func() bool { return waiting() == 0 && len(j.of("delayed")) >= 3 })
	if n := visible.Load(); n != 0 {
		b.Errorf("%d rows were visible before the message was acked", n)
	}
	stages := ""
	for _, v := range j.of("delayed") {
		stages += fmt.Sprint(v.stage())
	}
	if stages != "001" {
		b.Errorf("the message was handled in the stages %s: what the first time put is not gone", stages)
	}
	b.wantNeverEarly(&j, wait)
}
