package poison

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/destination"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/safecall"
)

// QueueConfig configures a Queue. The zero value is ready to use.
type QueueConfig struct {
	// Naming names the dead-letter topics. Default: DefaultNaming.
	Naming Naming
	// Fallbacks are tried in order when the publisher of NewQueue refuses a letter.
	Fallbacks []Sink
	// PublishAttempts is how often each sink is tried, refusals for size aside. Default: 3.
	PublishAttempts int
	// PublishBackoff is the wait after a sink's first refusal, give or take half of it; it doubles, up to a second, or
	// stays where it is longer than that. Default: 50 ms.
	PublishBackoff time.Duration
	// TooLarge tells a refusal for size from others. Default: IsTooLarge.
	TooLarge func(error) bool
	// MaxAdded is how many bytes of metadata a letter adds to its message at the most, WatermillKeys aside; at least 1 KiB.
	// Default: DefaultMaxAdded.
	MaxAdded int
	// Classifier judges errors that no retry further in has judged. Default: marks and built-in knowledge.
	Classifier *classify.Classifier
	// Origin tells what the broker knows of where a message comes from. An adapter provides it. Topic, handler and
	// id that it leaves empty are filled in from the router.
	Origin func(*message.Message) Origin
	// MaskText changes the texts that errors and panics bring along (description, history, stack) before anybody sees
	// the letter, or reads a line of the log. Where it panics the text is withheld. The error that goes back to the router when no sink took the
	// letter, and so the router's log, is the handler's own.
	MaskText func(text string) string
	// MaskMetadata changes the producer's metadata in the letter, value by value. A redrive brings back what it left.
	// Where it panics the value is withheld.
	MaskMetadata func(key, value string) string
	// WatermillKeys also writes the metadata keys of Watermill's PoisonQueue, up to 4 KiB beyond MaxAdded.
	WatermillKeys bool
	// Node names this process in letters. Default: the host's name.
	Node string
	// Logger receives one Error line per dead letter: its cause, masked by MaskText and cut at 1 KiB, its class and reason, the
	// message's id, topic and handler, and where the letter is. Payloads are never logged. Default: none, or in a
	// spillway.Channel the router's.
	Logger watermill.LoggerAdapter
	// Hooks are called on what happens.
	Hooks Hooks
}

// Hooks are called after the event, in the goroutine of the message, and must be quick. Letters that they are given may
// be kept. A hook that panics is logged and changes nothing.
type Hooks struct {
	// OnDeadLetter is told of a letter whose placement was confirmed; Letter.Topic says where. One that is written in the
	// transaction of its message is seen by others, or undone, when that is acknowledged, after the hook.
	OnDeadLetter func(context.Context, Letter)
	// OnDiscard is told of a message that was dropped because its error said so.
	OnDiscard func(context.Context, Letter)
	// OnPublishError is told of each refusal by a sink.
	OnPublishError func(context.Context, Letter, error)
	// OnUnplaced is told of a letter that no sink took: the message is nacked and comes again, unless its handler had acked
	// it. Then it is lost, and nothing else but the log tells.
	OnUnplaced func(context.Context, Letter, error)
}

// Sink is a place for dead letters.
type Sink struct {
	Publisher message.Publisher
	// Topic is published to. Default: the topic that the letter was meant for.
	Topic string
}

func (c *QueueConfig) setDefaults() {
	if c.Naming == nil {
		c.Naming = DefaultNaming
	}
	if c.PublishAttempts == 0 {
		c.PublishAttempts = 3
	}
	if c.PublishBackoff == 0 {
		c.PublishBackoff = 50 * time.Millisecond
	}
	if c.TooLarge == nil {
		c.TooLarge = IsTooLarge
	}
	if c.MaxAdded == 0 {
		c.MaxAdded = DefaultMaxAdded
	}
	if c.Node == "" {
		c.Node, _ = os.Hostname()
	}
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
}

func (c *QueueConfig) validate() error {
	for i, sink := range c.Fallbacks {
		if safecall.IsNil(sink.Publisher) {
			return fmt.Errorf("poison: QueueConfig.Fallbacks[%d].Publisher is nil", i)
		}
		if err := destination.Check(sink.Publisher); err != nil {
			return fmt.Errorf("poison: QueueConfig.Fallbacks[%d].Publisher: %w", i, err)
		}
	}
	if c.PublishAttempts < 0 || c.PublishBackoff < 0 {
		return fmt.Errorf("poison: QueueConfig.PublishAttempts (%d) and PublishBackoff (%s) must not be negative", c.PublishAttempts, c.PublishBackoff)
	}
	if c.MaxAdded < minMaxAdded {
		return fmt.Errorf("poison: QueueConfig.MaxAdded is %d bytes: at least %d are needed to say why and from where", c.MaxAdded, minMaxAdded)
	}
	return c.Naming.probe()
}

// Queue sets failed messages aside. It is the outermost part around a handler. It is safe for concurrent use and remembers
// nothing of messages.
type Queue struct {
	publisher message.Publisher
	config    QueueConfig
	limits    limits
	guard     *outage.Guard // of what takes the letters
	misplaced sync.Once
	ready     sync.Map // dead-letter topics that exist
}

// NewQueue returns a Queue that sends dead letters to publisher, or an error that names what could lose messages.
//
// The publisher must belong to the queue and not to a handler: the router closes a handler's publisher when that handler
// stops. It must confirm each letter, because the source is acked after Publish returns. NewQueue refuses a decorator that
// hides an Initializer, see WithInitializer.
func NewQueue(publisher message.Publisher, config QueueConfig) (*Queue, error) {
	if safecall.IsNil(publisher) {
		return nil, errors.New("poison: NewQueue: the publisher is nil: dead letters would be lost; give a publisher or a dead-letter store")
	}
	if err := destination.Check(publisher); err != nil {
		return nil, fmt.Errorf("poison: NewQueue: the publisher: %w", err)
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	limits := defaultLimits
	limits.total = config.MaxAdded
	guard := outage.New(outage.Config{Name: "poison: the publisher of dead letters", Lost: outage.Lost, Logger: config.Logger})
	return &Queue{publisher: publisher, config: config, limits: limits, guard: guard}, nil
}

// Middleware sets aside what fails in h: the router sees success once the letter's placement was confirmed, and an
// error, which it nacks, when no sink took it or the message went away. Outputs of a failed handler are not published.
func (q *Queue) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(q.step)(h)
}

func init() { chain.Register((*Queue).step) }

func (q *Queue) step(next chain.Handler) chain.Handler {
	next = readable(next)
	return func(c *chain.Call) (out []*message.Message, err error) {
		returned := false
		defer func() {
			if !returned {
				out, err = nil, q.interrupted(c, recover())
			}
		}()
		out, err = next(c)
		returned = true
		if err != nil {
			return nil, q.settleOrNack(c, err)
		}
		return out, nil
	}
}
