package middleware

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

// GuardConfig says which messages do not reach the handler. The zero value lets every message pass.
type GuardConfig struct {
	// Required are metadata keys that a message must have, with a value that is not empty. A message that lacks one is
	// invalid, with reason missing_metadata.
	Required []string
	// ExpiresKey is the metadata key of the time, in RFC 3339, at which the message expires. An expired message is
	// permanent, with reason ttl_expired. A message without the key, or with a value that is no time, does not expire.
	ExpiresKey string
	// MaxHops is how many handlers with a guard a message may have come through. The metadata x-hop-count of outputs
	// carries the count on. A message with a higher count is permanent, with reason max_hop_count_exceeded: it goes in
	// circles. Default: no limit.
	MaxHops int
}

func (c *GuardConfig) validate() error {
	for i, key := range c.Required {
		if key == "" {
			return fmt.Errorf("middleware: GuardConfig.Required[%d] is empty: no message could pass; remove it", i)
		}
	}
	if c.MaxHops < 0 {
		return fmt.Errorf("middleware: GuardConfig.MaxHops is %d: it must not be negative", c.MaxHops)
	}
	return nil
}

func (c *GuardConfig) isZero() bool {
	return len(c.Required) == 0 && c.ExpiresKey == "" && c.MaxHops == 0
}

// Guard keeps messages away from a handler that are expired, go in circles, or lack required metadata.
type Guard struct {
	link
	config GuardConfig
}

// NewGuard returns a Guard, or an error that names the field of config that is wrong.
func NewGuard(config GuardConfig) (*Guard, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	g := &Guard{config: config}
	g.link = chain.LinkOf(g.step)
	return g, nil
}

// Middleware returns a classified error instead of calling h if the message does not pass. A guard that lets everything
// pass costs nothing.
func (g *Guard) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(g.step)(h)
}

func (g *Guard) step(next chain.Handler) chain.Handler {
	if g.config.isZero() {
		return next
	}
	return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
		if err := g.check(c.Msg); err != nil {
			return nil, chain.Outcome{Next: chain.DeadLetter, Why: err}
		}
		hops := g.hops(c.Msg)
		out, o := next(c)
		if o.Next == chain.Done && g.config.MaxHops > 0 {
			out = g.countHop(c.Msg, out, hops+1)
		}
		return out, o
	}
}

func (g *Guard) check(msg *message.Message) error {
	for _, key := range g.config.Required {
		if msg.Metadata.Get(key) == "" {
			return classify.Invalid(fmt.Errorf("middleware: required metadata %q is missing", key),
				classify.Reason(classify.ReasonMissingMetadata))
		}
	}
	if expires := g.expires(msg); !expires.IsZero() && !time.Now().Before(expires) {
		return classify.Permanent(fmt.Errorf("middleware: the message expired at %s", expires.Format(time.RFC3339)),
			classify.Reason(classify.ReasonExpired))
	}
	if hops := g.hops(msg); g.config.MaxHops > 0 && hops > g.config.MaxHops {
		return classify.Permanent(fmt.Errorf("middleware: the message came through %d handlers, and GuardConfig.MaxHops is %d",
			hops, g.config.MaxHops), classify.Reason(classify.ReasonMaxHops))
	}
	return nil
}

func (g *Guard) expires(msg *message.Message) time.Time {
	value := msg.Metadata[g.config.ExpiresKey]
	if g.config.ExpiresKey == "" || value == "" { // parsing it would allocate
		return time.Time{}
	}
	return boundedtext.Time(value)
}

func (g *Guard) hops(msg *message.Message) int {
	value := msg.Metadata[hopsKey]
	if g.config.MaxHops == 0 || value == "" {
		return 0
	}
	return boundedtext.Count(value)
}

// hopsKey is the metadata key that counts hops.
const hopsKey = "x-hop-count"

// countHop sets the count on outputs. If the handler returned its own message, a copy is published instead: the message
// that arrived must be as it was if it comes again.
func (g *Guard) countHop(source *message.Message, out []*message.Message, hops int) []*message.Message {
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
