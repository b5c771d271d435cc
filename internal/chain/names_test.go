package chain

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

const whatToDo = `This version of Watermill keeps what a router knows of a message in another way. Without it, a message
out of a retry stage has the stage's name. If Watermill exports a function that writes the names, use it in names.go.
If the names have one context key each, let KeyOf find it. Otherwise stay with the old version.`

// Decision 6: the names that a router leaves in a message's context can be replaced, and only these.
func TestWatermillKeys(t *testing.T) {
	if !WritesNames() || handlerName == nil || subscribeTopic == nil || handlerName == subscribeTopic {
		t.Fatalf("the keys are %#v and %#v. %s", handlerName, subscribeTopic, whatToDo)
	}
	pubsub := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 1}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	handled := make(chan context.Context, 1)
	router.AddConsumerHandler("stage", "waiting", pubsub, func(msg *message.Message) error {
		handled <- msg.Context()
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- router.Run(t.Context()) }()
	<-router.Running()
	if err := pubsub.Publish("waiting", message.NewMessage("1", nil)); err != nil {
		t.Fatal(err)
	}
	before := <-handled
	after := Within(before, "billing", "orders")
	if message.HandlerNameFromCtx(before) != "stage" || message.SubscribeTopicFromCtx(before) != "waiting" ||
		message.HandlerNameFromCtx(after) != "billing" || message.SubscribeTopicFromCtx(after) != "orders" ||
		message.SubscriberNameFromCtx(after) != message.SubscriberNameFromCtx(before) {
		t.Errorf("handler %q and topic %q became %q and %q. %s", message.HandlerNameFromCtx(before), message.SubscribeTopicFromCtx(before),
			message.HandlerNameFromCtx(after), message.SubscribeTopicFromCtx(after), whatToDo)
	}
	if err := router.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Decision 28: where nothing shows how the names are kept, WritesNames says so, and no stages are made.
func TestWatermillKeysAreGone(t *testing.T) {
	was := handlerName
	defer func() { handlerName = was }()
	handlerName = KeyOf("a function that reads no context", func(context.Context) {})
	if WritesNames() {
		t.Error("the names can be written")
	}
	foreign.Take()
}
