package crash

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
)

// Plan says what is published, and when the consumer is killed.
type Plan struct {
	Setting
	// Kills is how often the consumer is killed.
	Kills int
	// KillAt is how many more events are stored each time before it is. 0 spreads the kills over the events.
	KillAt int

	events []*message.Message
}

// Ready says what is wrong with the plan before any server is asked for anything, and gives the run a topic of its own.
func (p *Plan) Ready() (err error) {
	if p.events, err = webhooks.Load(p.Input); err != nil {
		return err
	}
	if p.Kills < 0 || p.KillAt < 0 {
		return fmt.Errorf("-kills %d, -kill-at %d: neither can be negative", p.Kills, p.KillAt)
	}
	if p.KillAt == 0 {
		p.KillAt = max(1, len(p.events)/(p.Kills+2))
	}
	if p.Kills > 0 && p.KillAt > len(p.events)/p.Kills {
		return p.tooLate(len(p.events))
	}
	p.Topic = "webhooks-" + strings.ToLower(rand.Text()[:12])
	return nil
}

// tooLate is the error of a plan in which the consumer outlives its work.
func (p *Plan) tooLate(possible int) error {
	return fmt.Errorf("-kills %d, -kill-at %d: of these %d events, not more than %d are stored before the fix: give "+
		"less, or -kills 0", p.Kills, p.KillAt, len(p.events), possible)
}
