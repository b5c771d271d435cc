package breaker

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/observe"
)

// Config says what counts as an outage, and how the breaker looks for its end. The zero value is useful.
type Config struct {
	// FailureRate is the share of failed messages at which the breaker opens, from above 0 to 1. Default: 0.5.
	FailureRate float64
	// MinMessages is the number of messages of which FailureRate is taken at least. So many messages that fail in a row
	// open the breaker too. Default: 20.
	MinMessages int
	// Window is the time in which messages count for FailureRate. It begins with a failure. The breaker also opens if
	// nothing succeeds for a whole Window: then at least 5 transient attempts, or 3 messages, must have failed.
	// Default: 10 s.
	Window time.Duration
	// Doubt is how long errors that do not say unavailable hold messages in all. Then messages that fail with them go on
	// as without a breaker, and an Error line says so. Doubt is also how long one or two messages alone, whose
	// errors say unavailable, keep the breaker open. Then the one that failed goes to its next stage, counted, and another
	// message is tried. Without stages an Error line names it, and it is held on. Default: 1 minute.
	Doubt time.Duration
	// Probe is the wait before the first probe. Each next wait is twice as long, with jitter. Default: 250 ms.
	Probe time.Duration
	// MaxProbe is the longest wait between probes. Default: 5 s, or Probe if that is longer.
	MaxProbe time.Duration
	// MaxHold is how long a message is held at most before it is requeued, uncounted. A message is never held for
	// longer than its adapter allows, or than half of a known redelivery time of its broker: see
	// stages.Config.Subscriber. Default: that time (with wmkafka's Subscriber 24 hours, with wmamqp's 15 minutes), or
	// 20 s if nothing is known.
	MaxHold time.Duration
	// Scope returns the part of a handler's messages that fails alone, such as a tenant or a message type: each scope
	// has a state of its own. Scope is called only while something fails. It must not change the message. If Scope
	// panics, the message has no scope. At most 100 scopes of a handler have a state. A further scope takes the place
	// of the one whose latest failure is longest ago, of those that hold no message. If all hold messages, further
	// scopes share one state. Default: the handler has one state.
	Scope func(*message.Message) string
	// Store, such as that of package sqlshare, shares outages among the instances of a service: one that finds an outage
	// opens the breakers of the others, and one whose message succeeds closes them. A freeze in the Store counts in all
	// instances. It needs Plugin, or a spillway.Channel's Attach. Default: each instance decides for itself.
	Store Store
	// Hooks are called after events. Default: none.
	Hooks Hooks
	// Shared: Classifier judges the errors. Logger receives an Error line when the breaker opens, an Info line when it
	// closes, and Debug lines between. Privacy masks the text of an error before it is logged or shown.
	observe.Shared
}

// Hooks must be quick. A panic of a hook is logged and changes nothing.
type Hooks struct {
	// OnChange is called after each change of a state, one at a time and in order.
	OnChange func(Change)
	// OnWaited is called after a message waited in the breaker, with how long. Then the message is handled, or it is
	// requeued, uncounted. The context is the message's.
	OnWaited func(ctx context.Context, waited time.Duration, requeued bool)
}

func (c *Config) setDefaults() {
	c.FailureRate = cmp.Or(c.FailureRate, 0.5)
	c.MinMessages = cmp.Or(c.MinMessages, 20)
	c.Window = cmp.Or(c.Window, 10*time.Second)
	c.Doubt = cmp.Or(c.Doubt, time.Minute)
	c.Probe = cmp.Or(c.Probe, 250*time.Millisecond)
	c.MaxProbe = cmp.Or(c.MaxProbe, max(5*time.Second, c.Probe))
	c.Logger = logging.Wrap(c.Logger, c.Privacy.Text)
}

func (c *Config) validate() error {
	switch {
	case !(c.FailureRate > 0 && c.FailureRate <= 1): // NaN is neither
		return fmt.Errorf("breaker: Config.FailureRate is %g: it must be above 0 and at most 1", c.FailureRate)
	case c.MinMessages < 1:
		return fmt.Errorf("breaker: Config.MinMessages is %d: it must be at least 1", c.MinMessages)
	case c.Window < time.Millisecond:
		return fmt.Errorf("breaker: Config.Window is %s: it must be at least 1ms", c.Window)
	case c.Probe < time.Millisecond || c.MaxProbe < c.Probe:
		return fmt.Errorf("breaker: Config.Probe is %s and MaxProbe %s: Probe must be at least 1ms, and at most MaxProbe",
			c.Probe, c.MaxProbe)
	case c.Doubt < 0 || c.MaxHold < 0:
		return fmt.Errorf("breaker: Config.Doubt (%s) and MaxHold (%s) must not be negative", c.Doubt, c.MaxHold)
	}
	return nil
}
