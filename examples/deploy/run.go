package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

const (
	instances = 3
	limit     = time.Minute // until all messages are handled
)

func run(ctx context.Context, plan *Plan, out io.Writer) (_ *Result, err error) {
	s, err := openSource(ctx, plan)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	t, what := newTally(), new(atomic.Value)
	what.Store("")
	var live [instances]*instance
	defer func() {
		for _, i := range live {
			if i != nil {
				err = errors.Join(err, i.close())
			}
		}
	}()
	for n := range live {
		if live[n], err = start(ctx, plan, s, t); err != nil {
			return nil, err
		}
	}
	stop := draws(out, t, what)
	defer stop()
	publishing, enough := context.WithCancel(ctx)
	defer enough()
	ids := make(chan []string, 1)
	go func() { ids <- publish(publishing, plan, s) }()

	var longest time.Duration
	for n := range live {
		if err := sleep(ctx, plan.Between); err != nil {
			return nil, err
		}
		for until := time.Now().Add(limit); live[n].running.Load() == 0 && time.Now().Before(until); {
			if err := sleep(ctx, 10*time.Millisecond); err != nil {
				return nil, err
			}
		}
		what.Store(fmt.Sprintf("instance %d closes", n+1))
		began := time.Now()
		closing := live[n]
		live[n] = nil
		if err := closing.close(); err != nil {
			return nil, err
		}
		longest = max(longest, time.Since(began))
		what.Store(fmt.Sprintf("a new instance %d", n+1))
		if live[n], err = start(ctx, plan, s, t); err != nil {
			return nil, err
		}
	}
	if err := sleep(ctx, plan.Between); err != nil {
		return nil, err
	}
	enough()
	published := <-ids
	for deadline := time.Now().Add(limit); !t.allFinished(published) && time.Now().Before(deadline); {
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return t.result(plan, published, longest), nil
}

// publish returns the ids of messages that the broker has.
func publish(ctx context.Context, plan *Plan, s *source) (ids []string) {
	for n := 0; ; n++ {
		if msg := message.NewMessage(strconv.Itoa(n), nil); s.publisher.Publish(plan.topic, msg) == nil {
			ids = append(ids, msg.UUID)
		}
		if sleep(ctx, s.every) != nil {
			return ids
		}
	}
}

// draws writes a line of the chart each second.
func draws(out io.Writer, t *tally, what *atomic.Value) (stop func()) {
	since, ended := time.Now(), make(chan struct{})
	var drawing sync.WaitGroup
	drawing.Go(func() {
		ticks := time.NewTicker(time.Second)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				fmt.Fprintln(out, t.line(since, what.Load().(string)))
			case <-ended:
				return
			}
		}
	})
	return func() { close(ended); drawing.Wait() }
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
