package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/testing/downstream"
	"github.com/watermill-spillway/spillway/internal/testing/services"
)

// campaign is one run of a plan on one broker.
type campaign struct {
	plan    *plan
	name    string   // of the broker
	servers []string // its own, then that of the database
	site    *site    // reached without a proxy
	slots   [slots]*slot
	folder  string // of the consumers' logs
	out     io.Writer
	begun   time.Time

	published                atomic.Int64 // of plan.ids
	children                 sync.WaitGroup
	databaseBusy, brokerBusy sync.Mutex
	down                     *downstream.Server // nil without outages
	downBusy                 sync.Mutex
	mu                       sync.Mutex
	happened                 map[string]int
}

func (c *campaign) tell(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.out, "%s %6.1fs  %s\n", c.name, time.Since(c.begun).Seconds(), fmt.Sprintf(format, args...))
}

func (c *campaign) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.happened[what]++
}

// run makes all that the campaign needs, lets it happen, accounts, and leaves nothing behind but, where something is
// wrong, the logs.
func (c *campaign) run(ctx context.Context) (r *report, err error) {
	c.begun, c.happened = time.Now(), map[string]int{}
	// PostgreSQL's names have 63 bytes, with all endings
	own := fmt.Sprintf("chaos_%.1s_%x", c.name, time.Now().UnixMilli())
	b, err := newBase(c.servers[len(c.servers)-1], own)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.remove()) }()
	address := b.host
	if len(c.servers) > 1 {
		if address, err = services.Lookup(c.servers[0]); err != nil {
			return nil, err
		}
	}
	direct := setting{Broker: c.name, Address: address, Driver: b.driver, DSN: b.dsn, Topic: own, Seed: c.plan.Seed,
		Debug: c.plan.Messages <= 2000}
	if c.plan.outages {
		if c.down, err = downstream.New(); err != nil {
			return nil, err
		}
		defer c.down.Close()
		direct.Downstream = c.down.Addr()
	}
	if c.site, err = open(direct, watermill.NopLogger{}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.site.close()) }()
	defer func() { err = errors.Join(err, c.site.remove()) }()
	if err := errors.Join(c.site.create(), c.site.createEffects()); err != nil {
		return nil, fmt.Errorf("make the topics: %w", err)
	}
	if c.folder, err = os.MkdirTemp("", "spillway-chaos-"+c.name+"-"); err != nil {
		return nil, err
	}
	defer func() {
		if err == nil && r.Good() {
			err = os.RemoveAll(c.folder)
		} else {
			c.tell("the consumers' logs are in %s", c.folder)
		}
	}()
	// Whatever happens, nothing of ours runs on.
	defer c.children.Wait()
	defer func() {
		for _, s := range c.slots {
			if s != nil {
				s.kill()
			}
		}
	}()
	for i := range c.slots {
		s, remove, err := c.newSlot(i, direct, b)
		if err != nil {
			return nil, err
		}
		defer remove()
		c.slots[i] = s
	}
	left, err := c.happen(ctx)
	if err != nil {
		return nil, err
	}
	return c.account(left)
}

// newSlot makes the place of a consumer, with proxies of its own.
func (c *campaign) newSlot(number int, s setting, b base) (_ *slot, remove func(), err error) {
	place := &slot{campaign: c, number: number, setting: s}
	if place.database, err = newProxy(b.host); err != nil {
		return nil, nil, err
	}
	place.broker, remove = place.database, place.database.Close
	if place.setting.DSN, err = b.at(place.database.Addr()); err != nil {
		return nil, nil, err
	}
	if len(c.servers) > 1 {
		host := s.Address
		if c.name == "rabbitmq" {
			if host, err = hostAMQP(s.Address); err != nil {
				return nil, nil, err
			}
		}
		if place.broker, err = newProxy(host); err != nil {
			return nil, nil, err
		}
		remove = func() { place.database.Close(); place.broker.Close() }
		place.setting.Address = place.broker.Addr()
		if c.name == "rabbitmq" {
			if place.setting.Address, err = viaAMQP(s.Address, place.broker.Addr()); err != nil {
				return nil, nil, err
			}
		}
	}
	return place, remove, place.begin()
}

// happen publishes, breaks and heals, and waits until all is quiet. left is what the consumers have not settled then.
func (c *campaign) happen(ctx context.Context) (left int, err error) {
	for _, s := range c.slots { // a fault that meets a consumer which is not there yet is none
		if err := s.untilUp(ctx); err != nil {
			return 0, err
		}
	}
	// RabbitMQ that is killed within a second after it declared a quorum queue may keep one that never confirms.
	wait(ctx, 2*time.Second)
	c.tell("%d messages, seed %d, %d faults", c.plan.Messages, c.plan.Seed, len(c.plan.faults))
	publishing := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		err := c.publish(ctx)
		if err != nil {
			cancel() // faults wait for messages
		}
		publishing <- err
	}()
	broken := c.breakAll(ctx)
	if err := errors.Join(<-publishing, broken); err != nil {
		return 0, err
	}
	c.tell("all messages are published, and all faults have ended")
	return c.settle(ctx)
}

// patience is the time without progress after which the messages that are left count as stuck.
const patience = 60 * time.Second

// settle waits until the consumers have settled all, and ends them in order: what one of them still held is there again
// then, and they go on.
func (c *campaign) settle(ctx context.Context) (left int, err error) {
	last, since := "", time.Now()
	for quiet := 0; ; {
		effects, failed := c.effectsSoFar(ctx)
		left, err = c.site.waiting(ctx)
		switch now := fmt.Sprint(effects, left, c.endings(), errors.Join(failed, err)); {
		case ctx.Err() != nil:
			c.tell("the time is up: %d messages wait", left)
			return left, nil
		case now != last:
			last, since, quiet = now, time.Now(), 0
		case time.Since(since) > patience:
			if err := errors.Join(failed, err); err != nil {
				return left, fmt.Errorf("count the messages that wait: %w", err)
			}
			if err := c.stop(); err != nil { // what a consumer holds, a broker may not count
				return left, err
			}
			left, err = c.site.waiting(ctx)
			c.tell("no progress for %s: %d messages wait", patience, left)
			return left, err
		case failed == nil && err == nil && left == 0:
			quiet++
		}
		if quiet >= 4 && (quiet >= 40 || c.accounted(ctx, effects)) { // what a consumer holds, RabbitMQ does not count
			if err := c.stop(); err != nil {
				return left, err
			}
			if left, err = c.site.waiting(ctx); left == 0 && err == nil {
				c.tell("no message waits")
				return 0, nil
			}
			quiet = 0
			for _, s := range c.slots {
				if err := s.begin(); err != nil {
					return left, err
				}
			}
		}
		wait(ctx, 250*time.Millisecond)
	}
}

// accounted reports whether there are as many effects and letters as there must be, some of which may be repeated.
func (c *campaign) accounted(ctx context.Context, effects int) bool {
	letters := 0
	for _, topic := range c.site.deadLetters() {
		n, err := c.site.backlog(ctx, c.site.reader(topic), topic)
		if err != nil {
			return false
		}
		letters += n
	}
	for _, k := range kinds {
		if k.reason == "" {
			effects -= c.plan.counts[k.name]
		} else {
			letters -= c.plan.counts[k.name]
		}
	}
	return effects >= 0 && letters >= 0
}

func (c *campaign) endings() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.happened["deadly"] + c.happened["ended"]
}

// stop ends all consumers in order.
func (c *campaign) stop() (err error) {
	for _, s := range c.slots {
		err = errors.Join(err, s.stop())
	}
	return err
}

// logs are the files with what the consumers said.
func (c *campaign) logs() []string {
	files, _ := filepath.Glob(filepath.Join(c.folder, "*.log"))
	return files
}
