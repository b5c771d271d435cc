package chain

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Promises P1, P2: calls reused from the pool never mix messages, although handlers scribble, payloads differ in size
// and some calls are kept and released later by another goroutine. Arrived tells what was there before the handler. It
// means most with -race.
func TestPoolNeverMixes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const workers, each = 8, 400
	kept := make(chan func() error, workers*each)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			for i := range each {
				err := passOne(random, fmt.Sprintf("%d-%d", w, i), kept)
				testkit.Check(t, err == nil, "worker %d: the message has %v", w, err)
			}
		})
	}
	go func() { wg.Wait(); close(kept) }()
	for release := range kept {
		err := release()
		testkit.Check(t, err == nil, "a kept call has %v", err)
	}
}

// passOne sends one message through a chain whose handler scribbles; every fourth call is kept beyond it.
func passOne(random *rand.Rand, id string, kept chan<- func() error) error {
	a := arrive(id, message.Metadata{"id": id, id: "key"}, []byte(strings.Repeat(id, 1+random.IntN(200))))
	keep := random.IntN(4) == 0
	var held *Call
	step := func(next Handler) Handler {
		return func(c *Call) ([]*message.Message, Outcome) {
			c.Attempts++
			out, o := next(c)
			if c.Attempts != 1 || c.Arrived("id") != id || c.Arrived("late") != "" {
				return nil, OutcomeOf(fmt.Errorf("attempts %d and id %q of another message", c.Attempts, c.Arrived("id")))
			}
			if keep {
				c.Detach()
				held = c
			}
			return out, o
		}
	}
	_, err := Enter(step)(func(m *message.Message) ([]*message.Message, error) {
		clear(m.Payload)
		m.Metadata.Set("id", "scribbled")
		m.Metadata.Set("late", "scribbled")
		return nil, errBoom
	})(a.msg)
	if keep {
		kept <- func() error { defer held.Release(); return checkOriginal(held, a) }
	}
	if err != errBoom {
		return err
	}
	return a.check()
}

func checkOriginal(c *Call, a arrival) error {
	a.msg = c.Original()
	a.first = &a.msg.Payload[0]
	return a.check()
}
