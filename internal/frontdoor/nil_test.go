package frontdoor_test

import (
	"context"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
)

// refused runs a router with one handler, which must not start, and returns why.
func refused(t *testing.T, pub message.Publisher, attach func(*message.Router)) string {
	t.Helper()
	router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	attach(router)
	router.AddHandler("billing", "orders", gochannel.NewGoChannel(gochannel.Config{}, nil), "out", pub, message.PassthroughHandler)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // a router that runs all the same
		select {
		case <-router.Running():
			_ = router.Close()
		case <-ctx.Done():
		}
	}()
	err := router.Run(ctx)
	cancel()
	if err == nil {
		return "it runs"
	}
	return err.Error()
}

// Conventions: Attach and Plugin return no error at once, so nil is one of Run, and never a panic.
func TestAttachNil(t *testing.T) {
	ps := gochannel.NewGoChannel(gochannel.Config{}, nil)
	channel := func() *spillway.Channel {
		return testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: ps}))
	}
	none, twice := (*spillway.Channel)(nil), channel()
	none.Attach(nil)
	testkit.Check(t, channel().Plugin(nil) != nil, "Plugin(nil)")
	twice.Attach(nil)
	out := gochannel.NewGoChannel(gochannel.Config{}, nil)
	for want, attach := range map[string]func(*message.Router){
		"the Channel is nil":                  none.Attach,
		"Attach was called with a nil router": twice.Attach,
	} {
		got := refused(t, out, attach)
		testkit.Check(t, strings.Contains(got, want), "%s: %s", want, got)
	}
}

// Feature D4: the dead letters' publisher must not be a handler's too: the router closes it when that handler stops.
func TestSharedPublisherIsRefused(t *testing.T) {
	ps := gochannel.NewGoChannel(gochannel.Config{}, nil)
	transformed := testkit.Must(message.MessageTransformPublisherDecorator(func(*message.Message) {})(ps))
	for _, pub := range []message.Publisher{ps, transformed} {
		dlc := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: ps}))
		got := refused(t, pub, dlc.Attach)
		testkit.Check(t, strings.Contains(got, "is a handler's publisher too"), "%T: %s", pub, got)
	}
}

// Bad input: a nil context is an error with a sentence, with and without a database.
func TestNewWithoutContext(t *testing.T) {
	b := newBench(t, false)
	for _, config := range []spillway.Config{{Publisher: &shop.Outputs{}}, {DB: b.DB, Service: "shop"}} {
		_, err := spillway.New(nil, config) //lint:ignore SA1012 it is the test
		testkit.Says(t, err, "give context.Background()")
	}
	_, err := idempotency.NewStore(nil, b.DB, "") //lint:ignore SA1012 it is the test
	testkit.Says(t, err, "give context.Background()")
}
