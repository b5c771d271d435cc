package conformance

import (
	"context"
	"database/sql"
	"os/exec"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/idempotency"
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

	// Database is for a pub/sub on tables whose messages are consumed in a transaction that the handler's writes join. It
	// returns the database that the messages are in, the same at each call, and the store of keys that joins. The suite
	// makes tables of its own there. Where it is nil the effects are in SQLite.
	Database func(t testing.TB) (*sql.DB, idempotency.Store)

	// Delays returns the store of messages that wait, where the broker's own messages are. Where it is nil they wait in SQLite.
	Delays func(t testing.TB) *delay.Store
	// Holds says that a message which waits in a topic holds a transaction, or a deadline: stages that are long are in the
	// store then.
	Holds bool
	// Competing says that the subscribers of a topic share its messages, whatever their groups.
	Competing bool

	// CreateShared is CreateTopic for a topic that two members of a group consume at the same time. Where it is nil,
	// CreateTopic's are.
	CreateShared func(t testing.TB, topic string)
	// DeleteTopic removes a topic, used or not, and returns when it is gone. One that is not there is no error.
	DeleteTopic func(t testing.TB, topic string)
	// ReadOnly makes a topic that accepts nothing, until writable is called.
	ReadOnly func(t testing.TB, topic string) (writable func())
	// Restart stops the broker in order, starts it, and returns when it answers. A broker that cannot be restarted here
	// may skip the test.
	Restart func(t testing.TB)
	// Address is the broker's, host:port, for a proxy to stand in front of.
	Address string
	// Through is Publisher with time-outs of seconds, every connection of which goes to address, whatever the broker says
	// of itself. The suite closes it.
	Through func(t testing.TB, address string) message.Publisher
	// SubscriberThrough is Subscriber with all connections to address.
	SubscriberThrough func(t testing.TB, group, address string) message.Subscriber

	// Pins names the features, by id, that the pub/sub does not offer, with the reason. They are not run, and stand in the
	// matrix with it.
	Pins map[string]string

	command func() (*exec.Cmd, error) // of a consuming process
}

// Unreadable is a payload that the subscriber's unmarshaler must refuse.
const Unreadable = "conformance: no unmarshaler can read this"

// Hostile is a message that only the broker's own client can send.
type Hostile struct {
	// Name says what is hard about it.
	Name string
	// Publish sends the message. It has the id "hostile" if it can have one.
	Publish func(t testing.TB, topic string)
	// Check looks at the message as it came back from a redrive.
	Check func(t testing.TB, msg *message.Message)
}
