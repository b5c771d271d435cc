package jetstream

import (
	"time"

	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	natsgo "github.com/nats-io/nats.go"
)

// Config configures publishers and subscribers. Only URL is required, and for subscribers Group.
type Config struct {
	// URL is the server's address, or several with commas between them.
	URL string
	// Group names the durable consumers. The subscribers of a group share a topic's messages.
	Group string
	// Marshaler is how messages are written and read. Default: nats.GobMarshaler.
	Marshaler nats.MarshalerUnmarshaler

	// AckWait is the time after which the server delivers a message again that was not acked. A message's context ends
	// then. Default: 30 s.
	AckWait time.Duration
	// InFlight is the number of messages that one subscriber of a topic handles at the same time. Default: 1.
	InFlight int
	// MaxAckPending is how many messages of a topic the server has under way to the whole group. All of them must be
	// handled within AckWait, or the rest is delivered twice. Default: 4 * InFlight.
	MaxAckPending int

	// PublishWait is how long a publisher waits for the server's confirmation. Default: 5 s.
	PublishWait time.Duration
	// Options are added to those of the connection.
	Options []natsgo.Option
}

func (c Config) withDefaults() Config {
	if c.Marshaler == nil {
		c.Marshaler = nats.GobMarshaler{}
	}
	if c.AckWait <= 0 {
		c.AckWait = 30 * time.Second
	}
	if c.InFlight <= 0 {
		c.InFlight = 1
	}
	if c.MaxAckPending <= 0 {
		c.MaxAckPending = 4 * c.InFlight
	}
	if c.PublishWait <= 0 {
		c.PublishWait = 5 * time.Second
	}
	return c
}

// connect returns a connection that never gives up, and that notices within seconds that the other end is silent.
func (c Config) connect() (*natsgo.Conn, error) {
	options := []natsgo.Option{
		natsgo.MaxReconnects(-1),
		natsgo.ReconnectWait(250 * time.Millisecond),
		natsgo.PingInterval(5 * time.Second),
		natsgo.MaxPingsOutstanding(2),
		// While the server is unavailable, a message is refused at once. The client would keep it and publish it later, after
		// its publisher was told that it failed.
		natsgo.ReconnectBufSize(-1),
	}
	return natsgo.Connect(c.URL, append(options, c.Options...)...)
}
