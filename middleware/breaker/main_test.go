package breaker_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errBoom        = errors.New("boom")
	errUnavailable = classify.Unavailable(errors.New("the bank is unavailable"))
)

func newBreaker(t testing.TB, config breaker.Config) *breaker.Breaker {
	return testkit.Must(breaker.New(config))
}

// message of the handler billing.
func newMessage(ctx context.Context, id string) *message.Message {
	return message.NewMessageWithContext(chain.Within(ctx, "billing", "orders"), id, []byte(id))
}

// service is a downstream whose answer a test chooses.
type service struct {
	mu     sync.Mutex
	answer func(id string) error // nil: success
	calls  []time.Time
}

func (s *service) set(answer func(id string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *service) fail(err error) { s.set(func(string) error { return err }) }

func (s *service) handle(msg *message.Message) ([]*message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, time.Now())
	if s.answer == nil {
		return nil, nil
	}
	return nil, s.answer(msg.UUID)
}

// since counts the calls from a time on.
func (s *service) since(at time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, call := range s.calls {
		if !call.Before(at) {
			n++
		}
	}
	return n
}

// count counts all calls.
func (s *service) count() int { return s.since(time.Time{}) }

// unavailableFor is the answer of a service that is unavailable for messages whose ids have a prefix.
func unavailableFor(prefix string) func(id string) error {
	return func(id string) error {
		if strings.HasPrefix(id, prefix) {
			return errUnavailable
		}
		return nil
	}
}

func succeed(*message.Message) ([]*message.Message, error) { return nil, nil }
