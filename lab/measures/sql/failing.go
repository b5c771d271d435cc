package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/poison"
)

// patience is how long a trial with failing messages may take.
const patience = 3 * time.Minute

// percents are the shares of messages that fail.
var percents = []int{0, 1, 10, 100}

// underFailure says how many messages a second are left while some are dead-lettered in their transaction, and what a
// failing message costs, in messages that succeed.
func underFailure(d *database, topic string, p plan, to io.Writer) error {
	var sides []func() (float64, error)
	for _, percent := range percents {
		sides = append(sides, func() (float64, error) {
			took, err := d.failing(topic, p.messages, percent)
			return took.Seconds() / float64(p.messages), err
		})
	}
	medians, err := harness.Alternate(p.rounds, sides...)
	if err != nil {
		return fmt.Errorf("failing: %w", err)
	}
	good := medians[0]
	for i, percent := range percents {
		figure := harness.Figure{
			"db": d.Name, "failing_percent": percent, "messages_per_s": harness.Whole(1 / medians[i]),
			"share": harness.Hundredths(good / medians[i]),
		}
		if share := float64(percent) / 100; share >= 0.1 { // below, the noise of the good ones is more
			figure["dead_letter_in_messages"] = harness.Hundredths((medians[i] - good*(1-share)) / share / good)
		}
		if err := harness.Print(to, "sql_under_failure", figure); err != nil {
			return err
		}
	}
	return nil
}

// failing is how long a router takes for n messages with the default batch, a share of which are dead-lettered.
func (d *database) failing(topic string, n, percent int) (time.Duration, error) {
	run := &failures{n: n, percent: percent, number: map[string]int{}, settled: map[string]bool{},
		done: make(chan struct{})}
	sub, dlc, err := d.protected(0, poison.Hooks{OnDeadLetter: func(_ context.Context, l poison.Letter) {
		run.settle(l.Original.UUID)
	}})
	if err != nil {
		return 0, err
	}
	err = harness.Route(d.ctx, func(router *message.Router) error {
		dlc.Attach(router)
		router.AddConsumerHandler("bench", topic, sub, func(msg *message.Message) error {
			if run.fails(msg.UUID) {
				return errPermanent
			}
			if err := d.apply(msg); err != nil {
				return err
			}
			run.settle(msg.UUID)
			return nil
		})
		return nil
	}, nil, run.done, patience)
	run.mu.Lock()
	defer run.mu.Unlock()
	if err == nil && len(run.settled) < n {
		err = fmt.Errorf("%d of %d messages were settled", len(run.settled), n)
	}
	return run.ended.Sub(run.began), err
}

var errPermanent = classify.Permanent(errors.New("no such order"))

// failures counts the first n messages that come.
type failures struct {
	n, percent int
	done       chan struct{} // closed when all were handled or dead-lettered

	mu           sync.Mutex
	number       map[string]int // by id, in the order in which they came
	settled      map[string]bool
	began, ended time.Time
}

// fails spreads those that fail evenly.
func (f *failures) fails(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.began.IsZero() {
		f.began = time.Now()
	}
	i, came := f.number[id]
	if !came {
		i = len(f.number)
		f.number[id] = i
	}
	return i < f.n && (i+1)*f.percent/100 > i*f.percent/100
}

func (f *failures) settle(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.number[id] >= f.n || f.settled[id] {
		return
	}
	if f.settled[id] = true; len(f.settled) == f.n {
		f.ended = time.Now()
		close(f.done)
	}
}
