// Package guard keeps messages away from a handler that are expired, go in circles, or lack required metadata.
//
// It holds nothing, and a guard that lets everything pass costs nothing.
package guard

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
)

// Rules are a spillway.GuardConfig.
type Rules struct {
	Required   []string
	ExpiresKey string
	MaxHops    int
}

func (r *Rules) validate() error {
	for i, key := range r.Required {
		if key == "" {
			return fmt.Errorf("guard: GuardConfig.Required[%d] is empty: no message could pass; remove it", i)
		}
	}
	if r.MaxHops < 0 {
		return fmt.Errorf("guard: GuardConfig.MaxHops is %d: it must not be negative", r.MaxHops)
	}
	return nil
}

func (r *Rules) isZero() bool {
	return len(r.Required) == 0 && r.ExpiresKey == "" && r.MaxHops == 0
}

// New returns the part of a chain that refuses with a classified error what does not pass, or an error that names the
// field that is wrong.
func New(rules Rules) (chain.Part, error) {
	if err := rules.validate(); err != nil {
		return nil, err
	}
	return chain.LinkOf((&guard{rules}).step), nil
}

type guard struct{ Rules }

func (g *guard) step(next chain.Handler) chain.Handler {
	if g.isZero() {
		return next
	}
	return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
		if err := g.check(c.Msg); err != nil {
			return nil, chain.Outcome{Next: chain.DeadLetter, Why: err}
		}
		hops := g.hops(c.Msg)
		out, o := next(c)
		if o.Next == chain.Done && g.MaxHops > 0 {
			out = g.countHop(c.Msg, out, hops+1)
		}
		return out, o
	}
}

func (g *guard) check(msg *message.Message) error {
	for _, key := range g.Required {
		if msg.Metadata.Get(key) == "" {
			return classify.Invalid(fmt.Errorf("guard: required metadata %q is missing", key),
				classify.Reason(classify.ReasonMissingMetadata))
		}
	}
	if expires := g.expires(msg); !expires.IsZero() && !time.Now().Before(expires) {
		return classify.Permanent(fmt.Errorf("guard: the message expired at %s", expires.Format(time.RFC3339)),
			classify.Reason(classify.ReasonExpired))
	}
	if hops := g.hops(msg); g.MaxHops > 0 && hops > g.MaxHops {
		return classify.Permanent(fmt.Errorf("guard: the message came through %d handlers, and GuardConfig.MaxHops is %d",
			hops, g.MaxHops), classify.Reason(classify.ReasonMaxHops))
	}
	return nil
}

func (g *guard) expires(msg *message.Message) time.Time {
	value := msg.Metadata[g.ExpiresKey]
	if g.ExpiresKey == "" || value == "" { // parsing it would allocate
		return time.Time{}
	}
	return boundedtext.Time(value)
}

func (g *guard) hops(msg *message.Message) int {
	value := msg.Metadata[hopsKey]
	if g.MaxHops == 0 || value == "" {
		return 0
	}
	return boundedtext.Count(value)
}

// hopsKey is the metadata key that counts hops.
const hopsKey = "x-hop-count"

// countHop sets the count on outputs. If the handler returned its own message, a copy is published instead: the message
// that arrived must be as it was if it comes again.
func (g *guard) countHop(source *message.Message, out []*message.Message, hops int) []*message.Message {
	count := strconv.Itoa(hops)
	for i, msg := range out {
		if msg == nil { // Recover, further in, makes an error of it
			continue
		}
		if msg == source {
			msg = msg.CopyWithContext()
			out[i] = msg
		}
		metadata := make(message.Metadata, len(msg.Metadata)+1) // the handler may have shared the map of the source
		maps.Copy(metadata, msg.Metadata)
		metadata[hopsKey] = count
		msg.Metadata = metadata
	}
	return out
}
