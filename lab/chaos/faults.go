package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/downstream"
	"github.com/watermill-spillway/spillway/internal/testing/services"
)

// breakAll lets each fault begin when its messages are published, beside those that still last, and returns when all
// are healed, whatever ctx says.
func (c *campaign) breakAll(ctx context.Context) error {
	var lasting sync.WaitGroup
	failed := make(chan error, len(c.plan.faults))
	for _, f := range c.plan.faults {
		for int(c.published.Load()) < f.at && ctx.Err() == nil {
			wait(ctx, 2*time.Millisecond)
		}
		if ctx.Err() != nil {
			break
		}
		lasting.Go(func() {
			if err := c.inflict(ctx, f); err != nil {
				failed <- fmt.Errorf("%s: %w", f, err)
			}
		})
	}
	lasting.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return ctx.Err()
	}
}

// inflict breaks one thing and heals it. What is broken already is waited for.
func (c *campaign) inflict(ctx context.Context, f fault) error {
	s := c.slots[f.slot]
	switch f.what {
	case database:
		return c.crash(ctx, f, &c.databaseBusy, c.servers[len(c.servers)-1])
	case broker:
		return c.crash(ctx, f, &c.brokerBusy, c.servers[0])
	case nack:
		return c.nack(ctx, f)
	case dark:
		c.downBusy.Lock()
		defer c.downBusy.Unlock()
		c.begin(f)
		err := c.down.Set(f.mode)
		wait(ctx, f.lasts)
		return errors.Join(err, c.down.Set(downstream.Up))
	case cut, silence:
		p := s.broker
		if f.toDatabase {
			p = s.database
		}
		p.busy.Lock()
		defer p.busy.Unlock()
		c.begin(f)
		if f.what == cut {
			p.during(ctx, f.lasts, p.Cut)
		} else {
			p.during(ctx, f.lasts, p.HalfOpen)
		}
		return nil
	}
	s.busy.Lock()
	defer s.busy.Unlock()
	c.begin(f)
	switch f.what {
	case kill:
		return s.process().signal(syscall.SIGKILL)
	case deploy:
		return s.deploy(ctx)
	default:
		p := s.process()
		if err := p.signal(syscall.SIGSTOP); err != nil {
			return err
		}
		wait(ctx, f.lasts)
		return p.signal(syscall.SIGCONT)
	}
}

// unmet is how long a queue nacks that no consumer publishes to, because another fault keeps them from it, or all is
// done.
const unmet = 20 * time.Second

// nack has the queue of outputs refuse what comes, by a policy that bounds it, for as long as the fault lasts after a
// consumer has met it. The broker is not killed meanwhile.
func (c *campaign) nack(ctx context.Context, f fault) error {
	c.brokerBusy.Lock()
	defer c.brokerBusy.Unlock()
	c.begin(f)
	queue := c.site.outputs()
	const bound = `{"max-length":0,"overflow":"reject-publish"}`
	before := c.mentions(nacked)
	pattern := "^" + regexp.QuoteMeta(queue) + "$"
	err := services.Control("rabbitmqctl", "rabbitmq", "set_policy", queue, pattern, bound, "--apply-to", "queues")
	until := time.Now().Add(unmet)
	for err == nil && ctx.Err() == nil && time.Now().Before(until) {
		wait(ctx, 500*time.Millisecond)
		if c.mentions(nacked) > before {
			c.count("nack_met")
			break
		}
	}
	wait(ctx, f.lasts)
	return errors.Join(err, services.Control("rabbitmqctl", "rabbitmq", "clear_policy", queue))
}

// crash kills a server and starts it again.
func (c *campaign) crash(ctx context.Context, f fault, busy *sync.Mutex, server string) error {
	busy.Lock()
	defer busy.Unlock()
	c.begin(f)
	if err := services.Control("kill", server); err != nil {
		return err
	}
	wait(ctx, f.lasts)
	err := services.Control("start", server)
	if err != nil { // a terminal's interrupt reaches what starts it too
		err = services.Control("start", server)
	}
	return err
}

func (c *campaign) begin(f fault) {
	c.count(f.what)
	c.tell("%s", f)
}
