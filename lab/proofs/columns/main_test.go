// Package columns_test holds pub/subs that have no adapter to the promises: Redis Streams and NATS JetStream.
package columns_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/conformance"
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
		// redisstream's reader sleeps half a second after the error with which its client's Close ends it.
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream.(*Subscriber).read"),
		// Close of a go-redis client leaves this loop behind.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/maintnotifications.(*CircuitBreakerManager).cleanupLoop"))
}

const elsewhere = "K18: messages and keys are in two places: lab/chaos kills the server of the keys, and F2 the broker"
