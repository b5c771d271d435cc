package conformance_test

import (
	"flag"
	"os"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/conformance"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(conformance.ChildVariable) != "" { // a consumer whose connection may be cut: clients take seconds to end
		os.Exit(m.Run())
	}
	// Each test has a broker of its own and mostly waits for it, so all run at the same time, however few processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	// A router whose Run fails at start-up leaves this goroutine of its own behind.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"),
		// The one goroutine of sarama's metrics lives as long as the process.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		// What watermill-amqp leaves behind when it is closed while it is not connected.
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp.(*ConnectionWrapper).handleConnectionClose"),
		// The circuit breaker of sarama's producer sleeps out its ten seconds.
		goleak.IgnoreAnyFunction("github.com/eapache/go-resiliency/breaker.(*Breaker).timer"),
		// A connection whose query was cancelled waits for its server to hang up, for 15 seconds at the most.
		goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn.(*PgConn).asyncClose.func1"))
}

// staysOpen is a gochannel that a router cannot close: its one instance is every publisher and every subscriber.
type staysOpen struct{ *gochannel.GoChannel }

func (staysOpen) Close() error { return nil }

// Unwrap says that Close leaves what is inside open.
func (staysOpen) Unwrap() message.Publisher { return nil }

const oneProcess = "K12: lives in one process, and dies with it"

const (
	everyone = "K5: every subscriber gets every message, whatever its group"
	forgets  = "K13: gives every new subscriber all letters again"
	noBytes  = "K14: hands over messages, reads no bytes"
)

// The suite on Watermill's in-memory pub/sub.
func TestGoChannel(t *testing.T) {
	t.Parallel()
	channel := gochannel.NewGoChannel(gochannel.Config{Persistent: true, OutputChannelBuffer: 16}, nil)
	defer func() { testkit.Is(t, channel.Close(), nil) }()
	conformance.Run(t, conformance.Target{
		Name:       "gochannel",
		Publisher:  func(testing.TB) message.Publisher { return staysOpen{channel} },
		Subscriber: func(testing.TB, string) message.Subscriber { return staysOpen{channel} },
		Pins: map[string]string{
			"K3": everyone, "K5/one group": everyone, "K6": "K6: hands messages over in no order", "K13": forgets, "K14": noBytes,
			"K20":          "K20: counts nothing",
			"D9":           "K18: no SQL source",
			"D5":           "K16: topics need not be made",
			"D8":           noBytes,
			"V3":           forgets,
			"H3":           "K14: has no client but Watermill",
			"H9/in topics": "K19: has no list of topics",
			"D10":          oneProcess, "F1": oneProcess, "F2": oneProcess, "F3": oneProcess, "F4": oneProcess,
			"F5": oneProcess, "F6": oneProcess, "F7": oneProcess, "F8": oneProcess,
			"R12b": oneProcess, "R12c": oneProcess, "F9": oneProcess, "F10": oneProcess,
		},
	})
}
