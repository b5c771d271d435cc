package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// Feature R12: successes that pass without the lock count like others. The second breaker has a Scope, and takes the
// lock for each message.
func TestQuickSuccessesCount(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			config := Config{MinMessages: 12, Window: 20 * time.Second}
			quick, err := New(config)
			testkit.NoError(t, err)
			config.Scope = func(*message.Message) string { return "" }
			exact, err := New(config)
			testkit.NoError(t, err)
			var outcome error
			handle := func(*message.Message) ([]*message.Message, error) { return nil, outcome }
			both := []message.HandlerFunc{quick.Middleware(handle), exact.Middleware(handle)}
			rt.Repeat(map[string]func(*rapid.T){
				"handle": func(rt *rapid.T) {
					id := fmt.Sprint(rapid.IntRange(1, 30).Draw(rt, "id"))
					outcome = rapid.SampledFrom([]error{nil, nil, nil, nil, errors.New("unknown"), classify.Transient(errors.New("boom"))}).Draw(rt, "outcome")
					for n := rapid.IntRange(1, 4).Draw(rt, "times"); n > 0; n-- {
						var ended sync.WaitGroup
						for _, h := range both { // at the same time: one that is held is given back after a moment
							ctx, cancel := context.WithTimeout(foreign.Within(context.Background(), "billing", "orders"), time.Millisecond)
							ended.Go(func() {
								defer cancel()
								_, _ = h(message.NewMessageWithContext(ctx, id, nil))
							})
						}
						ended.Wait()
					}
				},
				"wait": func(rt *rapid.T) {
					time.Sleep(time.Duration(rapid.IntRange(1, 30_000).Draw(rt, "ms")) * time.Millisecond)
					synctest.Wait()
				},
				"": func(rt *rapid.T) {
					one, other := lookAt(quick), lookAt(exact)
					if one != other && !(hasOpened(quick) && hasOpened(exact)) { // then each draws its probes' waits by lot
						rt.Errorf("%s without the lock, %s with it", one, other)
					}
				},
			})
		})
	})
}

func hasOpened(g *Breaker) bool {
	s := g.find(place{handler: "billing"}, false)
	return s != nil && s.quick.phase.Load()>>1 > 0
}

// lookAt returns what the breaker knows of the handler billing.
func lookAt(g *Breaker) string {
	s := g.find(place{handler: "billing"}, false)
	if s == nil {
		return ""
	}
	s.lock()
	defer s.unlock()
	w := &s.window
	doubts := ""
	for kind, d := range s.doubts {
		doubts += fmt.Sprint(kind, d.spent, d.passed, d.among)
	}
	return fmt.Sprint(s.state, s.troubled, w.successes, w.failed, w.passed, w.attempts, w.distinct, w.among, w.others,
		w.messages.Len(), doubts)
}
