package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/services"
)

// disturb runs consumers until each message is settled, nothing is parked and everything is committed. Meanwhile it
// kills, stops and starts them. It returns how many messages are stuck.
func (s *setting) disturb(ctx context.Context) (happened map[string]int, stuck int, err error) {
	random, happened := rand.New(rand.NewPCG(s.Seed, 1)), map[string]int{}
	var running []*process
	for range s.Consumers {
		p, err := s.start()
		if err != nil {
			return nil, 0, err
		}
		running = append(running, p)
	}
	defer func() {
		for _, p := range running {
			err = errors.Join(err, p.end())
		}
	}()
	rare := s.rare()
	next, last, moved, cuts := 0, -1, time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return happened, max(s.Messages-last, 1), nil
		case <-time.After(100 * time.Millisecond):
		}
		for at, p := range running {
			select {
			case <-p.ended: // it could not start while the database was unavailable
				happened["ended"]++
				if running[at], err = s.start(); err != nil {
					return happened, 0, err
				}
			default:
			}
		}
		settled, waiting, err := s.settled(ctx)
		if err != nil { // no table yet
			continue
		}
		if settled != last {
			last, moved = settled, time.Now()
		}
		if settled >= s.Messages && waiting == 0 {
			if behind, err := s.broker.behind(); err == nil && behind == 0 {
				if happened["sparse"] == s.Sparse {
					return happened, 0, nil
				}
				happened["sparse"]++
				if err := s.sparse(ctx, random); err != nil {
					return happened, 0, err
				}
				moved = time.Now()
			}
		}
		if time.Since(moved) > 90*time.Second {
			return happened, max(s.Messages-settled, waiting, 1), nil
		}
		// the disturbances are spread over the messages
		if cuts < s.Cuts && settled > (cuts+1)*s.Messages/(s.Cuts+1) {
			cuts++
			happened["cut"] += s.cut(ctx)
		}
		if len(rare) > 0 && settled > rare[0].at {
			what := rare[0]
			rare = rare[1:]
			if err := what.do(); err != nil {
				return happened, 0, err
			}
			happened[what.name]++
		}
		if steps := s.Kills + 1; next < s.Kills && settled > (next+1)*s.Messages/steps {
			next++
			at := random.IntN(len(running))
			if s.Stops && next%3 == 0 {
				happened["stop"]++
				if err := s.stop(ctx, running[at]); err != nil {
					return happened, 0, err
				}
				continue
			}
			happened["kill"]++
			_ = running[at].Kill()
			<-running[at].ended
			if running[at], err = s.start(); err != nil {
				return happened, 0, err
			}
		}
	}
}

// silence is how long a source is silent until its consumer looks again at what is parked, on RabbitMQ.
const silence = 10 * time.Second

// sparse is a round of few messages. They fail once, and wait for as long as the source must be silent. One more comes
// while they are drained: when all were taken, the silence begins.
func (s *setting) sparse(ctx context.Context, random *rand.Rand) error {
	few := s.Messages + 500
	if err := s.broker.produce(s.Messages, few); err != nil {
		return err
	}
	s.Messages = few + 1
	for taken := 0; taken < few && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if settled, waiting, err := s.settled(ctx); err == nil {
			taken = settled + waiting
		}
	}
	select {
	case <-time.After(silence + time.Duration(random.Int64N(int64(time.Second)))):
	case <-ctx.Done():
	}
	return s.broker.produce(few, few+1)
}

// event happens once so many messages are settled.
type event struct {
	at   int
	name string
	do   func() error
}

// rare are those that happen once.
func (s *setting) rare() (all []event) {
	restart := func(server string) func() error { return func() error { return services.Control("restart", server) } }
	if s.Restarts && s.Broker != "tables" { // they are in the database
		all = append(all, event{s.Messages / 5, "restart", restart(s.Broker)})
	}
	if g, can := s.broker.(grower); can && s.Grow {
		all = append(all, event{s.Messages * 2 / 5, "grown", g.grow})
	}
	if s.Restarts {
		all = append(all, event{s.Messages * 7 / 10, "restart", restart(s.database)})
	}
	return all
}

// stop stops a consumer for longer than its session lasts.
func (s *setting) stop(ctx context.Context, p *process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	select {
	case <-time.After(9 * time.Second):
	case <-ctx.Done():
	}
	return p.Signal(syscall.SIGCONT)
}
