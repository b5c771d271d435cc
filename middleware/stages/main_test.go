package stages_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/poison"
)

func TestMain(m *testing.M) {
	// Timers of a synctest bubble that fire on two processors at once share one context of the race detector: Go 1.26
	// crashes now and then, where thousands do.
	runtime.GOMAXPROCS(1)
	goleak.VerifyTestMain(m)
}

var errBoom = errors.New("boom")

func newMessage(id string) *message.Message {
	msg := message.NewMessage(id, []byte("payload of "+id))
	msg.Metadata.Set("tenant", "acme")
	return msg
}

func newRetry(t testing.TB, config middleware.RetryConfig) *middleware.Retry {
	return testkit.Must(middleware.NewRetry(config))
}

func newQueue(t testing.TB, dead message.Publisher) *poison.Queue {
	return testkit.Must(poison.NewQueue(dead, poison.QueueConfig{}))
}
