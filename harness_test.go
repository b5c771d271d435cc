package spillway_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testkit/shop"
)

func TestMain(m *testing.M) {
	// A router whose Run fails at start-up, as one test wants, leaves this goroutine of its own behind.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"))
}

type bench struct{ *shop.Shop }

func newBench(t *testing.T, persistent bool) *bench { return &bench{shop.New(t, persistent)} }
