package frontdoor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/redelivering"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// tally counts what is published, by topic and id. It refuses while refuse is set.
type tally struct {
	mu     sync.Mutex
	by     map[string]int
	refuse bool
}

func (p *tally) Publish(topic string, messages ...*message.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, msg := range messages {
		if p.refuse {
			return classify.Away(errors.New("the broker is away"))
		}
		p.by[topic+"/"+msg.UUID]++
	}
	return nil
}

func (p *tally) Close() error { return nil }

func (p *tally) setRefuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Feature R5b: a broker redelivers messages after 2 s that are held for longer, because what they need is away. None is
// lost, none is handled twice beside itself, and none dead-lettered twice.
func TestHeldMessagesComeAgain(t *testing.T) {
	const messages = 20
	for name, row := range map[string]struct {
		after, says time.Duration
		parallel    int
		ends        bool
		outputs     bool // what is away is the broker of outputs
		maxHold     time.Duration
	}{
		"known":                     {after: 2 * time.Second, says: 2 * time.Second, parallel: 40},
		"unknown, contexts end":     {after: 2 * time.Second, says: -1, parallel: 40, ends: true},
		"unknown, outputs":          {after: 2 * time.Second, says: -1, parallel: 40, outputs: true},
		"unknown, held for long":    {after: 30 * time.Second, says: -1, parallel: 40, maxHold: 10 * time.Minute},
		"one by one, held for long": {after: 30 * time.Second, says: -1, parallel: 1, maxHold: 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, dead, outs, log := redelivering.New(row.after), &tally{by: map[string]int{}}, &tally{by: map[string]int{}}, &testkit.Log{}
				p.Parallel, p.Ends = row.parallel, row.ends
				if p.Ahead = 1000; row.parallel == 1 {
					p.Ahead = 2
				}
				config := spillway.Config{Publisher: dead, Logger: log, Breaker: &breaker.Config{MaxHold: row.maxHold}}
				config.Outputs.MaxHold = row.maxHold
				ch := testkit.Must(spillway.New(context.Background(), config))
				router := testkit.Must(
					message.NewRouter(message.RouterConfig{CloseTimeout: time.Hour}, watermill.NopLogger{}))
				ch.Attach(router)
				var mu sync.Mutex
				beside, twice, calls, away := map[string]bool{}, 0, map[string]int{}, true
				outs.refuse = row.outputs
				router.AddHandler("billing", "orders", p.Subscriber(row.says), "invoices", outs, func(msg *message.Message) ([]*message.Message, error) {
					mu.Lock()
					defer mu.Unlock()
					if beside[msg.UUID] {
						twice++
					}
					if away && !row.outputs {
						return nil, classify.Away(errors.New("the bank is away"))
					}
					calls[msg.UUID]++
					beside[msg.UUID] = true
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
					mu.Lock()
					beside[msg.UUID] = false
					if msg.UUID[len(msg.UUID)-1]%2 == 0 {
						return nil, classify.Permanent(errors.New("poison"))
					}
					return []*message.Message{message.NewMessage("of "+msg.UUID, nil)}, nil
				})
				done := make(chan error, 1)
				go func() { done <- router.Run(context.Background()) }()
				<-router.Running()
				for i := range messages {
					testkit.NoError(t, p.Publish("orders", message.NewMessage(fmt.Sprint(i), []byte("p"))))
				}
				time.Sleep(2 * time.Minute)
				mu.Lock()
				away = false
				mu.Unlock()
				outs.setRefuse(false)
				time.Sleep(20 * time.Minute)
				testkit.NoError(t, router.Close())
				<-done
				if len(dead.by) != messages/2 || len(outs.by) != messages/2 || p.Left() > 0 || twice > 0 {
					t.Errorf("%d dead-lettered and %d published of %d, %d left, %d handled beside themselves", len(dead.by), len(outs.by), messages, p.Left(), twice)
				}
				for id, n := range dead.by {
					testkit.Check(t, n == 1, "%s was dead-lettered %d times", id, n)
				}
				t.Logf("%d copies, %v", p.Copies(), calls)
			})
		})
	}
}
