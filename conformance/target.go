package conformance

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/poison"
)

// Target is a pub/sub under test. Name, Publisher and Subscriber are required; where another field is nil, the features
// that need it must have a pin.
type Target struct {
	// Name heads the pub/sub's column in the matrix.
	Name string

	// Publisher returns a new publisher that confirms what it takes. The suite closes it.
	Publisher func(t testing.TB) message.Publisher
	// Subscriber returns a new subscriber of the consumer group. The suite closes it, as a rule by its router. What
	// carries the payload Unreadable, it must fail to unmarshal.
	Subscriber func(t testing.TB, group string) message.Subscriber
	// Origin goes into poison.QueueConfig.Origin.
	Origin func(*message.Message) poison.Origin
	// Backlog returns redrive.DrainTopicConfig.Backlog for a consumer group.
	Backlog func(t testing.TB, group string) func(ctx context.Context, topic string) (int, error)

	// CreateTopic makes a topic that can be published to and subscribed to at once, and removes it after the test.
	CreateTopic func(t testing.TB, topic string)
	// BadTopic is a name that the broker does not accept.
	BadTopic string
	// Origins lists the metadata keys of the origin that the broker can fill in beyond topic, handler and id.
	Origins []string
	// BrokersOwn lists metadata keys that the broker adds by itself when it delivers a message again.
	BrokersOwn []string
	// MaxMessage is the largest message in bytes that the publisher takes; 0 where there is no such bound.
	MaxMessage int
	// Hostile are messages of the broker's own that are hard to bear.
	Hostile []Hostile

	// Pins names the features, by id, that the pub/sub does not offer, with the reason. They are not run, and stand in the
	// matrix with it.
	Pins map[string]string
}

// Unreadable is a payload that the subscriber's unmarshaler must refuse.
const Unreadable = "conformance: no unmarshaler can read this"

// Hostile is a message that only the broker's own client can send.
type Hostile struct {
	// Name says what is hard about it.
	Name string
	// Publish sends the message. It has the id "hostile" if it can have one.
	Publish func(t testing.TB, topic string)
	// Check looks at the message as the handler got it, the first time and after the redrive.
	Check func(t testing.TB, msg *message.Message)
}
