package outputs_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/poison"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

func newMessage(id string) *message.Message {
	msg := message.NewMessage(id, []byte("payload of "+id))
	msg.Metadata.Set("tenant", "acme")
	return msg
}

func newRetry(t testing.TB, config middleware.RetryConfig) *middleware.Retry {
	return testkit.Must(middleware.NewRetry(config))
}

// every is a backoff that always waits d.
func every(d time.Duration) middleware.Backoff {
	return middleware.Backoff{New: func() backoff.BackOff { return backoff.NewConstantBackOff(d) }}
}

// wantAborted checks that a message was given back without being counted.
func wantAborted(t testing.TB, err error) {
	t.Helper()
	f, ok := errs.Find[*classify.Failure](err)
	testkit.Require(t, ok && f.Verdict.Class == classify.ClassAborted && f.Attempts == 0 &&
		errors.Is(err, context.Canceled), "got %v, want an aborted error that counts nothing", err)
}

// failing returns a handler that fails with err the first n times, and its count of invocations.
func failing(n int, err error) (message.HandlerFunc, *int) {
	calls := new(int)
	return func(*message.Message) ([]*message.Message, error) {
		if *calls++; *calls <= n {
			return nil, err
		}
		return nil, nil
	}, calls
}

// publisher records what it takes. refuse says which messages it does not take, one after another, as most do.
type publisher struct {
	refuse func(topic string, msg *message.Message) error

	mu     sync.Mutex
	tried  []string
	taken  []*message.Message
	closed bool
}

var errClosed = errors.New("publisher is closed")

func (p *publisher) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		p.mu.Lock()
		p.tried = append(p.tried, msg.UUID)
		closed := p.closed
		p.mu.Unlock()
		if closed {
			return errClosed
		}
		if p.refuse != nil {
			if err := p.refuse(topic, msg); err != nil {
				return err
			}
		}
		p.mu.Lock()
		p.taken = append(p.taken, msg.Copy())
		p.mu.Unlock()
	}
	return nil
}

func (p *publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

func (p *publisher) messages() []*message.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.taken)
}

func (p *publisher) ids() []string {
	var ids []string
	for _, msg := range p.messages() {
		ids = append(ids, msg.UUID)
	}
	return ids
}

// tries counts how often a message was published, with or without success.
func (p *publisher) tries(id string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, tried := range p.tried {
		if tried == id {
			n++
		}
	}
	return n
}

// letters decodes what the publisher of a queue took.
func (p *publisher) letters(t testing.TB) []poison.Letter {
	t.Helper()
	var letters []poison.Letter
	for _, msg := range p.messages() {
		letter := testkit.Must(poison.Decode(msg))
		letters = append(letters, letter)
	}
	return letters
}
