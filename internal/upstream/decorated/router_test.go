package decorated

import (
	"reflect"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testing/facts"
)

// A router's middlewares and subscribers are where they were.
func TestFactRouter(t *testing.T) {
	facts := facts.Of(&routerRow) // the others are met within it
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	channel := gochannel.NewGoChannel(gochannel.Config{}, nil)
	defer channel.Close()
	handler := router.AddConsumerHandler("billing", "orders", channel, func(*message.Message) error { return nil })
	same := func(h message.HandlerFunc) message.HandlerFunc { return h }
	handler.AddMiddleware(same, same)
	router.AddMiddleware(same)
	own, known := Middlewares(router, "billing")
	others, _ := Middlewares(router, "shipping")
	facts.Met(t, router, known && own == 2 && others == 0)
	subscribers, known := Subscribers(router)
	facts.Met(t, router, known && len(subscribers) == 1 && subscribers[0].Elem().UnsafePointer() == reflect.ValueOf(channel).UnsafePointer())
	facts.Met(t, router, CloseTimeout(router) == 30*time.Second)
	facts.Check(t)
}
