package wmamqp

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
)

var (
	errNoURI = errors.New("wmamqp: the AMQP URI is empty: give amqp://user:password@host:port/")
	// they hold passwords
	errTwoURIs = errors.New("wmamqp: AMQP.Connection.AmqpURI is another URI than the constructor's: leave it empty")
)

// setURI sets the URI to connect to, which may stand in c as watermill-amqp's own configurations have it.
func setURI(c *amqp.Config, uri string) error {
	switch c.Connection.AmqpURI {
	case "", uri:
		c.Connection.AmqpURI = uri
	default:
		return errTwoURIs
	}
	if uri == "" {
		return errNoURI
	}
	return nil
}

// setAMQPDefaults sets what is missing as amqp.NewDurableQueueConfig and watermill-amqp's constructors do.
func setAMQPDefaults(c *amqp.Config) {
	durable := amqp.NewDurableQueueConfig("")
	if c.Exchange.GenerateName == nil {
		c.Exchange.GenerateName = durable.Exchange.GenerateName
	}
	if c.Queue.GenerateName == nil {
		c.Queue.GenerateName, c.Queue.Durable = durable.Queue.GenerateName, true
	}
	if c.QueueBind.GenerateRoutingKey == nil {
		c.QueueBind.GenerateRoutingKey = durable.QueueBind.GenerateRoutingKey
	}
	if c.Publish.GenerateRoutingKey == nil {
		c.Publish.GenerateRoutingKey = durable.Publish.GenerateRoutingKey
	}
	if c.Marshaler == nil {
		c.Marshaler = Marshaler{}
	}
	if c.TopologyBuilder == nil {
		c.TopologyBuilder = &amqp.DefaultTopologyBuilder{}
	}
	if c.Connection.Reconnect == nil { // watermill-amqp's own waits up to a minute
		c.Connection.Reconnect = &amqp.ReconnectConfig{
			BackoffInitialInterval: 100 * time.Millisecond, BackoffRandomizationFactor: 0.5, BackoffMultiplier: 1.5,
			BackoffMaxInterval: 5 * time.Second,
		}
	}
}
