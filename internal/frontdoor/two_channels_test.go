package frontdoor_test

import (
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
)

// Conventions, promise P4: two channels that are attached to one router would both claim each message, and every
// message, good ones too, would become a letter. Run refuses them, whatever their services and databases are, and with
// a decorator in between.
func TestTwoChannelsOnOneRouter(t *testing.T) {
	b := newBench(t, false)
	channel := func(config spillway.Config) *spillway.Channel {
		dlc := testkit.Must(spillway.New(t.Context(), config))
		return dlc
	}
	out := gochannel.NewGoChannel(gochannel.Config{}, nil)
	for name, second := range map[string]spillway.Config{
		"another service": {DB: b.DB, Service: "shipping"},
		"no database":     {Publisher: out},
	} {
		t.Run(name, func(t *testing.T) {
			one, other := channel(spillway.Config{DB: b.DB, Service: "billing"}), channel(second)
			got := refused(t, &shop.Outputs{}, func(router *message.Router) {
				one.Attach(router)
				router.AddSubscriberDecorators(message.MessageTransformSubscriberDecorator(func(*message.Message) {}))
				other.Attach(router)
			})
			if !strings.Contains(got, "two channels are attached to one router") || !strings.Contains(got, "Config.Receiver.Handlers") {
				t.Error(got)
			}
		})
	}
}
