package chain

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Promise P2: calls reused from the pool never mix messages, although handlers scribble, payloads differ in size and
// some calls are kept and released later by another goroutine. It means most with -race.
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
				if err := passOne(random, fmt.Sprintf("%d-%d", w, i), kept); err != nil {
					t.Errorf("worker %d: the message has %v", w, err)
				}
			}
		})
	}
	go func() { wg.Wait(); close(kept) }()
	for release := range kept {
		if err := release(); err != nil {
			t.Errorf("a kept call has %v", err)
		}
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
			if c.Attempts != 1 || c.Arrived("id") != id {
				return nil, OutcomeOf(fmt.Errorf("attempts %d and id %q of another message", c.Attempts, c.Arrived("id")))
			}
			out, o := next(c)
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

// Promise P1: a call kept by a part is not given to another message until it is released.
func TestDetachedCallIsNotReused(t *testing.T) {
	var held *Call
	keep := func(next Handler) Handler {
		return func(c *Call) ([]*message.Message, Outcome) { c.Detach(); held = c; return next(c) }
	}
	h := func(*message.Message) ([]*message.Message, error) { return nil, nil }
	a := ordinary()
	_, _ = Enter(keep)(h)(a.msg)
	for i := range 100 {
		_, _ = Enter()(h)(arrive(fmt.Sprint(i), nil, []byte("another payload")).msg)
	}
	if err := checkOriginal(held, a); err != nil {
		t.Fatalf("the kept call has %v", err)
	}
	held.Release()
}
