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
	"github.com/watermill-spillway/spillway/internal/safecall"
)

// GuardConfig says which messages never reach the handler. The zero value lets every message pass.
type GuardConfig struct {
	// Required are metadata keys that a message must have, with a value that is not empty. Without one it is invalid,
	// with reason missing_metadata.
	Required []string
	// ExpiresKey names the metadata that holds the time, in RFC 3339, from which the message is worthless. A message
	// without it, or with a value that is no time, does not expire.
	ExpiresKey string
	// MaxAge is how old a message may be. It needs CreatedAt.
	MaxAge time.Duration
	// CreatedAt tells when the message was made, or the zero time if nobody knows. See CreatedAtKey; adapters know the
	// broker's time.
	CreatedAt func(*message.Message) time.Time
	// Expired is what becomes of an expired message: ClassPermanent sets it aside with reason ttl_expired,
	// ClassDiscard drops it. Default: ClassPermanent.
	Expired classify.Class
	// MaxHops is through how many handlers with this guard a message may have come; outputs carry the count on. A
	// message with more is permanent, with reason max_hop_count_exceeded: it is going in circles.
	MaxHops int
	// HopsKey names the metadata that counts. Default: x-hop-count.
	HopsKey string
}

// CreatedAtKey reads the time a message was made from metadata, in RFC 3339.
func CreatedAtKey(key string) func(*message.Message) time.Time {
	return func(msg *message.Message) time.Time { return boundedtext.Time(msg.Metadata.Get(key)) }
}

func (c *GuardConfig) setDefaults() {
	if c.Expired == classify.ClassUnknown {
		c.Expired = classify.ClassPermanent
	}
	if c.HopsKey == "" {
		c.HopsKey = "x-hop-count"
	}
}

func (c *GuardConfig) validate() error {
	for i, key := range c.Required {
		if key == "" {
			return fmt.Errorf("middleware: GuardConfig.Required[%d] is empty: no message could pass", i)
		}
	}
	if c.MaxAge < 0 || c.MaxHops < 0 {
		return fmt.Errorf("middleware: GuardConfig.MaxAge (%s) and MaxHops (%d) must not be negative", c.MaxAge, c.MaxHops)
	}
	if c.MaxAge > 0 && c.CreatedAt == nil {
		return fmt.Errorf("middleware: GuardConfig.MaxAge is %s and CreatedAt is nil: nobody would know the age", c.MaxAge)
	}
	if c.Expired != classify.ClassPermanent && c.Expired != classify.ClassDiscard {
		return fmt.Errorf("middleware: GuardConfig.Expired is %s: it must be permanent or discard", c.Expired)
	}
	return nil
}

func (c *GuardConfig) isZero() bool {
	return len(c.Required) == 0 && c.ExpiresKey == "" && c.MaxAge == 0 && c.MaxHops == 0
}

// Guard keeps messages from a handler that it should not see: expired, going in circles, without required metadata.
type Guard struct{ config GuardConfig }

// NewGuard returns a Guard, or an error that names the field of config that makes no sense.
func NewGuard(config GuardConfig) (*Guard, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	return &Guard{config: config}, nil
}

// Middleware returns a classified error instead of calling h where the message does not pass.
func (g *Guard) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(g.step)(h)
}

func init() { chain.Register((*Guard).step) }

func (g *Guard) step(next chain.Handler) chain.Handler {
	if g.config.isZero() {
		return next
	}
	return func(c *chain.Call) ([]*message.Message, error) {
		if err := g.check(c.Msg); err != nil {
			return nil, err
		}
		hops := g.hops(c.Msg)
		out, err := next(c)
		if err == nil && g.config.MaxHops > 0 {
			out = g.countHop(c.Msg, out, hops+1)
		}
		return out, err
	}
}

func (g *Guard) check(msg *message.Message) error {
	for _, key := range g.config.Required {
		if msg.Metadata.Get(key) == "" {
			return classify.Invalid(fmt.Errorf("middleware: required metadata %q is missing", key), classify.Reason(classify.ReasonMissingMetadata))
		}
	}
	if expires := g.expires(msg); !expires.IsZero() && !time.Now().Before(expires) {
		return g.expired(fmt.Errorf("middleware: the message expired at %s", expires.Format(time.RFC3339)))
	}
	if g.config.MaxAge > 0 {
		var created time.Time
		if err := safecall.Call("GuardConfig.CreatedAt", func() error { created = g.config.CreatedAt(msg); return nil }); err != nil {
			return err
		}
		if !created.IsZero() && time.Since(created) > g.config.MaxAge {
			return g.expired(fmt.Errorf("middleware: the message of %s is older than %s", created.UTC().Format(time.RFC3339), g.config.MaxAge))
		}
	}
	if hops := g.hops(msg); g.config.MaxHops > 0 && hops > g.config.MaxHops {
		return classify.Permanent(fmt.Errorf("middleware: the message came through %d handlers, %d are allowed", hops, g.config.MaxHops), classify.Reason(classify.ReasonMaxHops))
	}
	return nil
}

func (g *Guard) expired(err error) error {
	if g.config.Expired == classify.ClassDiscard {
		return classify.Discard(err, classify.Reason(classify.ReasonExpired))
	}
	return classify.Permanent(err, classify.Reason(classify.ReasonExpired))
}

func (g *Guard) expires(msg *message.Message) time.Time {
	value := msg.Metadata[g.config.ExpiresKey]
	if g.config.ExpiresKey == "" || value == "" { // to find that out by parsing costs allocations
		return time.Time{}
	}
	return boundedtext.Time(value)
}

func (g *Guard) hops(msg *message.Message) int {
	value := msg.Metadata[g.config.HopsKey]
	if g.config.MaxHops == 0 || value == "" {
		return 0
	}
	return boundedtext.Count(value)
}

// countHop sets the count on outputs. A handler that passes its own message on gets a copy of it published, because
// the one that arrived must be as it was if it comes again.
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
		metadata := make(message.Metadata, len(msg.Metadata)+1) // a map of its own: the handler may have shared the source's
		maps.Copy(metadata, msg.Metadata)
		metadata[g.config.HopsKey] = count
		msg.Metadata = metadata
	}
	return out
}
