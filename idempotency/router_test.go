package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// inRouter runs the effect handler in a router under a name and returns a function that delivers one message to it and
// waits until it is acked.
func inRouter(t *testing.T, name string, middleware message.HandlerMiddleware) func(id string) {
	t.Helper()
	router := testkit.Must(message.NewRouter(message.RouterConfig{CloseTimeout: time.Second}, watermill.NopLogger{}))
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router.AddMiddleware(middleware)
	router.AddConsumerHandler(name, "orders", channel, func(msg *message.Message) error {
		_, err := effect(msg)
		return err
	})
	stopped := make(chan error)
	go func() { stopped <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		_ = router.Close()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	return func(id string) {
		t.Helper()
		testkit.NoError(t, channel.Publish("orders", newMessage(id)))
	}
}
