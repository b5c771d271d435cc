package stages_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
)

// fate is what becomes of one attempt.
type fate struct {
	kind  string
	after time.Duration
}

func fates() *rapid.Generator[fate] {
	return rapid.Custom(func(rt *rapid.T) fate {
		kind := rapid.SampledFrom([]string{"ok", "transient", "transient", "unknown", "unknown", "after", "permanent", "panic", "nack"}).Draw(rt, "kind")
		return fate{kind, rapid.SampledFrom([]time.Duration{time.Millisecond, 2 * time.Second, 9 * time.Second, 3 * time.Minute}).Draw(rt, "after")}
	})
}

// fails reports whether an attempt was counted.
func (f fate) fails() bool { return f.kind != "ok" && f.kind != "nack" }

// world is a random run of handlers with stages.
type world struct {
	*rapid.T
	s      *staging
	stages []stages.Stage
	jitter float64
	plans  map[string][]fate
	rough  bool // messages are refused, redelivered and cancelled, and routers restarted: there may be copies of a message

	mu      sync.Mutex
	calls   map[string]int // invocations
	applied map[string]int
	chance  *rand.Rand
}

func drawWorld(t *testing.T, rt *rapid.T, rough bool) *world {
	w := &world{T: rt, rough: rough, plans: map[string][]fate{}, calls: map[string]int{}, applied: map[string]int{}}
	w.chance = rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
	delays := rapid.SliceOfN(rapid.SampledFrom([]time.Duration{time.Second, 3 * time.Second, 10 * time.Second, time.Minute}), 1, 4).Draw(rt, "delays")
	w.stages = stages.Delays(delays...)
	all := w.stages
	if rapid.Bool().Draw(rt, "retired") {
		all = append([]stages.Stage{{Delay: 7 * time.Second, Retired: true}}, all...)
	}
	w.jitter = rapid.SampledFrom([]float64{-1, 0, 0.5, 1}).Draw(rt, "jitter")
	w.s = newStaging(t, stages.Config{
		Stages: all, Jitter: w.jitter,
	}, nil)
	w.s.broker.redelivers = 2 * rapid.SampledFrom([]time.Duration{0, 400 * time.Millisecond, 2 * time.Second, 7 * time.Second}).Draw(rt, "hold")
	if w.jitter = max(w.jitter, 0); w.jitter == 0 {
		w.jitter = 0.1 // the default, and more than none
	}
	for i := range rapid.IntRange(1, 12).Draw(rt, "messages") {
		w.plans[strconv.Itoa(i)] = rapid.SliceOfN(fates(), 0, 6).Draw(rt, "plan")
	}
	return w
}

// chaos makes the broker one that refuses messages and ends sessions.
func (w *world) chaos(on bool) {
	w.s.broker.mu.Lock()
	defer w.s.broker.mu.Unlock()
	if w.s.broker.refuses, w.s.broker.lasts = nil, nil; !on {
		return
	}
	w.s.broker.refuses = func(topic string, _ *message.Message) error {
		if topic != "orders" && w.draw(4) == 0 {
			return errors.New("not the leader")
		}
		return nil
	}
	w.s.broker.lasts = func(string) time.Duration { return time.Duration(w.draw(3)*w.draw(4000)) * time.Millisecond }
}

func (w *world) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.chance.IntN(n)
}

func (w *world) handle(msg *message.Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	call := w.calls[msg.UUID]
	w.calls[msg.UUID]++
	w.checkAttempt(msg, call)
	f := fate{kind: "ok"}
	if plan := w.plans[msg.UUID]; call < len(plan) {
		f = plan[call]
	}
	switch f.kind {
	case "transient":
		return classify.Transient(errBoom)
	case "unknown":
		return errBoom
	case "after":
		return classify.Transient(errBoom, classify.RetryAfter(f.after))
	case "permanent":
		return classify.Permanent(errBoom)
	case "panic":
		panic("boom")
	case "nack":
		msg.Nack()
		return nil
	}
	w.applied[msg.UUID]++
	return nil
}

// checkAttempt checks one invocation against what its message tells.
func (w *world) checkAttempt(msg *message.Message, call int) {
	stage := inside.Poison.StageOf(msg)
	attempts, _ := strconv.Atoi(msg.Metadata[poison.KeyAttempts])
	now := time.Now()
	counted := 0
	for _, f := range w.plans[msg.UUID][:min(call, len(w.plans[msg.UUID]))] {
		if f.fails() {
			counted++
		}
	}
	if attempts > counted || !w.rough && attempts != counted {
		w.Errorf("message %s comes with %d attempts, after %d that count", msg.UUID, attempts, counted)
	}
	if message.HandlerNameFromCtx(msg.Context()) != "billing" || string(msg.Payload) != "payload of "+msg.UUID || msg.Metadata["tenant"] != "acme" {
		w.Errorf("message %s comes as %s, with %v", msg.UUID, message.HandlerNameFromCtx(msg.Context()), msg.Metadata)
	}
	if attempts == 0 {
		return
	}
	if stage.Number < 1 || stage.Number > len(w.stages) {
		w.Errorf("message %s comes out of stage %d", msg.UUID, stage.Number)
		return
	}
	failed, _ := time.Parse(time.RFC3339Nano, msg.Metadata[poison.KeyLastFailedAt])
	if delay := w.stages[stage.Number-1].Delay; now.Before(stage.DueAt) || now.Before(failed.Add(delay)) {
		w.Errorf("message %s comes at %s, was due %s, failed %s, delay %s", msg.UUID, now, stage.DueAt, failed, delay)
	} else if late := now.Sub(stage.DueAt); !w.rough && late > w.bound(delay, stage.DueAt.Sub(failed)) {
		w.Errorf("message %s of stage %s comes %s late, jitter %v", msg.UUID, delay, late, w.jitter)
	}
}

// bound is how late a message may be: by the jitter's amplitude, and by as long as one is held where it asked to wait
// longer than the stage does, and so went round. Each nack stops those behind it.
func (w *world) bound(delay, asked time.Duration) time.Duration {
	amplitude := time.Duration(w.jitter * float64(delay))
	bound := amplitude + 100*time.Millisecond
	for _, plan := range w.plans {
		for _, f := range plan {
			if f.kind == "nack" {
				bound += redelivery
			}
		}
	}
	if asked > delay+amplitude {
		bound += delay + amplitude
	}
	return bound
}

// run publishes all messages and goes on until none is left in the broker.
func (w *world) run() {
	restarts := 0
	if w.rough {
		w.chaos(true)
		restarts = rapid.IntRange(0, 3).Draw(w.T, "restarts")
	}
	w.start()
	for id := range len(w.plans) {
		w.s.publish("orders", strconv.Itoa(id))
		time.Sleep(time.Duration(w.draw(2000)) * time.Millisecond)
	}
	for range restarts {
		time.Sleep(time.Duration(w.draw(20000)) * time.Millisecond)
		w.s.stop()
		time.Sleep(time.Duration(w.draw(20000)) * time.Millisecond)
		w.s.again()
		w.start()
	}
	if w.rough {
		time.Sleep(time.Minute)
		w.chaos(false)
	}
	for range 500 {
		if len(w.s.broker.left()) == 0 {
			break
		}
		time.Sleep(10 * time.Second)
	}
	w.s.stop()
}

func (w *world) start() {
	w.s.handle("billing", "orders", w.handle)
	w.s.run()
}

// ended checks that each message was applied, or set aside, or both where there may be copies of it.
func (w *world) ended() {
	left := w.s.broker.left()
	testkit.Require(w, len(left) == 0, "left in the broker: %v", left)
	letters := w.s.letters.all()
	for id, plan := range w.plans {
		applied := w.applied[id]
		letter, dead := letters[id]
		switch {
		case applied == 0 && !dead:
			w.Errorf("message %s with plan %v is lost after %d calls", id, plan, w.calls[id])
		case !w.rough && (applied > 1 || applied == 1 && dead):
			w.Errorf("message %s with plan %v: %d times applied, set aside %v", id, plan, applied, dead)
		}
		if !dead {
			continue
		}
		counted := 0
		for _, f := range plan[:min(len(plan), w.calls[id])] {
			if f.fails() {
				counted++
			}
		}
		if n := letter.Failure.Attempts; n > counted || n < 1 || !w.rough && n != counted || letter.Origin.Topic != "orders" || letter.Origin.Handler != "billing" {
			w.Errorf("message %s: the letter tells of %d attempts of %d at %+v", id, n, counted, letter.Origin)
		}
		testkit.Check(w, len(letter.Original.Metadata) == 1 && string(letter.Original.Payload) == "payload of "+id,
			"message %s: original %v", id, letter.Original.Metadata)
	}
}

// Features R5, R6, R10, promises P1, P2, P3: whatever fails, and however: no message is handled early, none is lost,
// each counts its attempts, and where nothing went wrong beside the handler none is later than the jitter's amplitude.
func TestStagesProperty(t *testing.T) {
	for _, rough := range []bool{false, true} {
		t.Run(fmt.Sprintf("rough=%v", rough), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rapid.Check(testkit.InBubble{TB: t}, func(rt *rapid.T) {
					w := drawWorld(t, rt, rough)
					w.run()
					w.ended()
				})
			})
		})
	}
}
