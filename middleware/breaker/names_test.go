package breaker_test

import (
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// Bad input: Open and Close of a handler that no router has hold nothing and let nothing pass, and say so. Before the
// router runs, and after it got a further handler, no name is wrong: the breaker does not know them all.
func TestOpenMisspelt(t *testing.T) {
	breaker := testkit.Must(breaker.New(breaker.Config{}))
	if err := breaker.Open("later", "before the router runs"); err != nil {
		t.Error(err)
	}
	if err := breaker.Close("later"); err != nil {
		t.Error(err)
	}
	source := gochannel.NewGoChannel(gochannel.Config{}, nil)
	var router *message.Router
	add := func(name string) {
		router.AddConsumerHandler(name, "orders", source, func(*message.Message) error { return nil })
	}
	testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) {
		router = r
		router.AddMiddleware(breaker.Middleware)
		router.AddPlugin(breaker.Plugin)
		add("billing")
	})
	for name, err := range map[string]error{"Open": breaker.Open("biling", "a deploy"), "Close": breaker.Close("biling")} {
		if err == nil || !strings.Contains(err.Error(), name+`: no handler is named "biling"`) || !strings.Contains(err.Error(), `"billing"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if held := breaker.Health(); len(held) != 0 {
		t.Errorf("%+v", held)
	}
	for _, name := range []string{"billing", ""} {
		if err := breaker.Open(name, "a deploy"); err != nil {
			t.Error(err)
		}
	}
	if held := breaker.Health(); len(held) != 2 {
		t.Errorf("%+v", held)
	}
	if err := breaker.Close(""); err != nil {
		t.Error(err)
	}
	add("shipping")
	testkit.NoError(t, router.RunHandlers(t.Context()))
	if err := breaker.Open("shipping", "a deploy"); err != nil {
		t.Error(err)
	}
}
