package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/bench/harness"
	"github.com/watermill-spillway/spillway/poison"
)

var errDown = errors.New("the payment service is down")

// trial is one run over a topic whose messages are numbered, of which some fail each time.
type trial struct {
	n, percent int

	began, last    atomic.Int64 // nanoseconds
	good, letters  atomic.Int64
	failures       atomic.Int64
	handled, dead  []atomic.Bool // by number
	ready          chan struct{} // closed when all handlers are subscribed
	begins         chan struct{} // closed with the first message
	done           chan struct{}
	started, ended sync.Once
}

func newTrial(n, percent int) *trial {
	return &trial{n: n, percent: percent, handled: make([]atomic.Bool, n), dead: make([]atomic.Bool, n), begins: make(chan struct{}), done: make(chan struct{})}
}

// failing spreads those that fail evenly.
func (t *trial) failing(number int) bool {
	return (number+1)*t.percent/100 > number*t.percent/100
}

func (t *trial) bad() int { return t.n * t.percent / 100 }

func (t *trial) handle(msg *message.Message) error {
	t.started.Do(func() {
		if t.ready != nil {
			<-t.ready
		}
		t.began.Store(time.Now().UnixNano())
		close(t.begins)
	})
	number := harness.NumberOf(msg.Payload)
	if t.failing(number) {
		t.failures.Add(1)
		return errDown
	}
	if !t.handled[number].Swap(true) {
		t.last.Store(time.Now().UnixNano())
		t.good.Add(1)
		t.check()
	}
	return nil
}

func (t *trial) letter(_ context.Context, l poison.Letter) {
	if number := harness.NumberOf(l.Original.Payload); !t.dead[number].Swap(true) {
		t.letters.Add(1)
		t.check()
	}
}

func (t *trial) check() {
	if t.good.Load() == int64(t.n-t.bad()) && t.letters.Load() == int64(t.bad()) {
		t.ended.Do(func() { close(t.done) })
	}
}

// finished tells what is missing, after each of the failing has been tried so often.
func (t *trial) finished(attempts int) error {
	if good, letters := int(t.good.Load()), int(t.letters.Load()); good != t.n-t.bad() || letters != t.bad() {
		return fmt.Errorf("%d of %d good messages were handled, and %d of %d failing ones set aside", good, t.n-t.bad(), letters, t.bad())
	}
	if failures := int(t.failures.Load()); failures < attempts*t.bad() {
		return fmt.Errorf("%d failing messages failed %d times, which is not %d times each", t.bad(), failures, attempts)
	}
	return nil
}

// live is how many good messages a second were handled, from the first delivery to the last of them.
func (t *trial) live() float64 {
	return float64(t.good.Load()) / (time.Duration(t.last.Load() - t.began.Load())).Seconds()
}
