package verdicts_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/cenkalti/backoff/v5"
	"github.com/sony/gobreaker"

	"github.com/watermill-spillway/spillway/classify"
)

// Feature C4: what cenkalti/backoff/v5 calls permanent is permanent, and its RetryAfter is kept.
func TestKnowledgeBackoff5(t *testing.T) {
	for name, err := range map[string]error{
		"permanent": backoff.Permanent(errors.New("no such customer")),
		"transient": backoff.Permanent(context.DeadlineExceeded),
	} {
		check(t, name, err, classify.ClassPermanent)
		if v := judge(classify.Transient(err)); v.Class != classify.ClassTransient {
			t.Errorf("%s, marked transient: %v", name, v)
		}
	}
	if v := judge(fmt.Errorf("call: %w", backoff.RetryAfter(3))); v.Class != classify.ClassTransient || v.RetryAfter != 3*time.Second {
		t.Errorf("retry after: %+v", v)
	}
}

// Features C4, C7: an open breaker passes with time, and something is away: gobreaker's, and that of Watermill's
// CircuitBreaker.
func TestKnowledgeBreakers(t *testing.T) {
	breaker := wm.NewCircuitBreaker(gobreaker.Settings{ReadyToTrip: func(gobreaker.Counts) bool { return true }})
	h := breaker.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, errors.New("down") })
	_, _ = h(message.NewMessage("1", nil))
	_, open := h(message.NewMessage("2", nil))
	for name, err := range map[string]error{
		"gobreaker": gobreaker.ErrOpenState, "gobreaker, half open": gobreaker.ErrTooManyRequests, "Watermill's CircuitBreaker": open,
	} {
		check(t, name, err, classify.ClassTransient)
		if v := judge(err); !v.Away {
			t.Errorf("%s: nothing is away: %+v", name, v)
		}
	}
}
