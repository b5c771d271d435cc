package main

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
)

// Plan says what is published, and what happens meanwhile.
type Plan struct {
	crash.Setting
	Postgres string // its URL
	Rate     int    // deliveries published per second
	Down     time.Duration
	Stages   []time.Duration
	Needs    []string // kinds of events that need the downstream
	Blocking bool
	Limit    time.Duration

	// downUntil, if set, keeps the downstream down for longer, until it returns.
	downUntil func(context.Context, *history) error

	deliveries []*message.Message
	before     int // different events in front of the first that needs the downstream
}

const (
	maxDeliveries = 100_000 // they are kept in memory
	maxStage      = time.Minute
	twice         = 0.05 // the share of deliveries that are of an event which was sent already
)

// Ready says what is wrong with the plan before any server is asked for anything, draws the deliveries, and gives the
// run a topic of its own.
func (p *Plan) Ready() error {
	switch {
	case p.Rate < 1 || p.Rate > 10_000:
		return fmt.Errorf("-rate %d: give 1 to 10000 events per second", p.Rate)
	case p.Down < time.Second || p.Down > time.Hour:
		return fmt.Errorf("-down %s: give 1s to 1h", p.Down)
	case p.Limit < time.Second || p.Limit > time.Hour:
		return fmt.Errorf("-limit %s: give 1s to 1h", p.Limit)
	case len(p.Stages) == 0 || len(p.Stages) > 10 || slices.Min(p.Stages) < 10*time.Millisecond ||
		slices.Max(p.Stages) > maxStage:
		return fmt.Errorf("-stages %v: give 1 to 10 delays of 10ms to %s", p.Stages, maxStage)
	}
	if different := slices.Compact(slices.Sorted(slices.Values(p.Stages))); len(different) < len(p.Stages) {
		return fmt.Errorf("-stages %v: give different delays; the chart has a row for each", p.Stages)
	}
	events, err := webhooks.Load(p.Input)
	if err != nil {
		return err
	}
	total := int(float64(p.Rate) * p.publishing().Seconds())
	if total > maxDeliveries {
		return fmt.Errorf("-rate %d, -down %s: that is %d events, and at most %d are published: give less", p.Rate,
			p.Down,
			total, maxDeliveries)
	}
	p.draw(events, total)
	needing := 0
	for _, msg := range p.deliveries {
		if p.needs(msg) {
			needing++
		}
	}
	if needing == 0 || needing == total {
		return fmt.Errorf("-needs %s: %d of %d events need the downstream: name kinds of events, such as issues, that are "+
			"some of them and not all", strings.Join(p.Needs, ","), needing, total)
	}
	p.Topic = "webhooks-" + strings.ToLower(rand.Text()[:12])
	return nil
}

// draw lets events come round and round under new ids, each round in another order. The same seed draws the same.
func (p *Plan) draw(events []*message.Message, total int) {
	random := mathrand.New(mathrand.NewPCG(p.Seed, p.Seed))
	p.deliveries = make([]*message.Message, 0, total)
	before, met := map[string]bool{}, false
	for round := 1; len(p.deliveries) < total; round++ {
		for _, at := range random.Perm(len(events)) {
			msg := events[at].Copy()
			msg.UUID = fmt.Sprintf("%s-%d", msg.UUID, round)
			if n := len(p.deliveries); n > 0 && random.Float64() < twice {
				msg = p.deliveries[random.IntN(n)].Copy()
			}
			if met = met || p.needs(msg); !met {
				before[msg.UUID] = true
			}
			if p.deliveries = append(p.deliveries, msg); len(p.deliveries) == total {
				break
			}
		}
	}
	p.before = len(before)
}

func (p *Plan) needs(msg *message.Message) bool {
	return slices.Contains(p.Needs, msg.Metadata.Get(webhooks.EventKey))
}

// publishing is how long events are published: past the recovery, so that there is live traffic to compare.
func (p *Plan) publishing() time.Duration { return p.Down + p.Down/2 }
