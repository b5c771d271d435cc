package poison

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// A router whose Run fails at start-up, as in TestMissingDestinationEndsRun, leaves this goroutine of its own
	// behind.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"))
}
