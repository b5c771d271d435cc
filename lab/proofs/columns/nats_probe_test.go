package columns_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/nats-io/nats.go"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/naming"
)

// Feature D5, D3: with AutoProvision the stock publisher of NATS has the streams of letters when the router runs, with
// no message in them. A name that NATS refuses ends Router.Run. Without AutoProvision one line in the log says that
// nothing made sure of the streams.
func TestNATSProbe(t *testing.T) {
	b := natsBroker{url: services.NATS(t)}
	for name, row := range map[string]struct {
		style                naming.Style
		provision            bool
		made, refused, noted bool
	}{
		"legal":           {style: naming.NATS, provision: true, made: true},
		"dots":            {provision: true, refused: true},
		"not provisioned": {style: naming.NATS, noted: true},
	} {
		t.Run(name, func(t *testing.T) {
			topic := "probe-" + watermill.NewShortUUID()
			pub, err := wmnats.NewPublisher(wmnats.PublisherConfig{URL: b.url, JetStream: wmnats.JetStreamConfig{AutoProvision: row.provision}}, nil)
			testkit.NoError(t, err)
			defer pub.Close()
			log := watermill.NewCaptureLogger()
			ch, err := spillway.New(t.Context(), spillway.Config{Publisher: pub, Naming: naming.Scheme{Style: row.style}, Logger: log})
			testkit.NoError(t, err)
			router := testkit.Must(message.NewRouter(message.RouterConfig{CloseTimeout: time.Minute}, nil))
			ch.Attach(router)
			memory := gochannel.NewGoChannel(gochannel.Config{}, nil)
			defer memory.Close()
			router.AddConsumerHandler("billing", topic, memory, func(*message.Message) error { return nil })
			err = testkit.Starts(t, router)
			testkit.Check(t, (err != nil) == row.refused && (err == nil || strings.Contains(err.Error(), topic+".")),
				"Run returned %v", err)
			for _, stream := range []string{topic + "-dlq", topic + "-invalid"} {
				b.admin(t, func(js nats.JetStreamContext) error {
					info, err := js.StreamInfo(stream)
					testkit.Check(t, (err == nil) == row.made && (!row.made || info.State.Msgs == 0),
						"stream %q: %+v, %v", stream, info, err)
					if err == nil {
						return js.DeleteStream(stream)
					}
					return nil
				})
			}
			if noted := len(log.Captured()[watermill.InfoLogLevel]) > 0; noted != row.noted {
				t.Errorf("log %v", log.Captured()[watermill.InfoLogLevel])
			}
		})
	}
}
