package main

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
)

// Plan says what is published, and what happens meanwhile.
type Plan struct {
	Input, On, How      string
	Rate, InFlight      int
	Before, Down, After time.Duration
	Poison              float64
	Seed                uint64
	Without             bool
	FigureAlone         bool
	Limit               time.Duration

	// downUntil, if set, keeps the downstream away for longer, until it returns.
	downUntil func(*history)

	topic      string
	deliveries []*message.Message
	poisoned   map[string]bool // ids of those that are cut short
}

const (
	maxDeliveries = 200_000 // they are kept in memory
	twice         = 0.05    // the share of deliveries that are of an event which was sent already
)

// ready returns an error for a flag that makes no sense, and draws the deliveries.
func (p *Plan) ready() error {
	switch {
	case p.How != refuse && p.How != busy && p.How != hang:
		return fmt.Errorf("-how %q: give %s, %s or %s", p.How, refuse, busy, hang)
	case p.Rate < 1 || p.Rate > 10_000:
		return fmt.Errorf("-rate %d: give 1 to 10000 webhooks per second", p.Rate)
	case p.InFlight < 1 || p.InFlight > 1000:
		return fmt.Errorf("-in-flight %d: give 1 to 1000", p.InFlight)
	case p.Before < 0 || p.Before > time.Hour || p.After < 0 || p.After > time.Hour:
		return fmt.Errorf("-before %s, -after %s: give 0s to 1h each", p.Before, p.After)
	case p.Down < 100*time.Millisecond || p.Down > time.Hour:
		return fmt.Errorf("-down %s: give 100ms to 1h", p.Down)
	case !(p.Poison >= 0 && p.Poison < 1):
		return fmt.Errorf("-poison %v: give a share, 0 or more and less than 1", p.Poison)
	case p.Limit < time.Second || p.Limit > time.Hour:
		return fmt.Errorf("-limit %s: give 1s to 1h", p.Limit)
	}
	events, err := webhooks.Load(p.Input)
	if err != nil {
		return err
	}
	total := int(float64(p.Rate) * (p.Before + p.Down + p.After).Seconds())
	if total < 1 || total > maxDeliveries {
		return fmt.Errorf("-rate %d for %s: that is %d webhooks, give 1 to %d", p.Rate, p.Before+p.Down+p.After, total,
			maxDeliveries)
	}
	p.draw(events, total)
	p.topic = "webhooks-" + strings.ToLower(rand.Text()[:12])
	return nil
}

// draw lets events come round and round under new ids, each round in another order. The same seed draws the same.
func (p *Plan) draw(events []*message.Message, total int) {
	random := mathrand.New(mathrand.NewPCG(p.Seed, p.Seed))
	p.deliveries, p.poisoned = make([]*message.Message, 0, total), map[string]bool{}
	for round := 1; ; round++ {
		for _, at := range random.Perm(len(events)) {
			msg := events[at].Copy()
			msg.UUID = fmt.Sprintf("%s-%d", msg.UUID, round)
			if n := len(p.deliveries); n > 0 && random.Float64() < twice {
				msg = p.deliveries[random.IntN(n)].Copy()
			} else if random.Float64() < p.Poison {
				msg.Payload = msg.Payload[:len(msg.Payload)/2]
				p.poisoned[msg.UUID] = true
			}
			if p.deliveries = append(p.deliveries, msg); len(p.deliveries) == total {
				return
			}
		}
	}
}
