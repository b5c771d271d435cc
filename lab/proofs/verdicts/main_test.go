// Package verdicts_test judges errors of modules that the library does not require.
package verdicts_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/cenkalti/backoff/v5"
	pkgerrors "github.com/pkg/errors"
	"github.com/sony/gobreaker"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/shop"
)

func judge(err error) classify.Verdict { return (*classify.Classifier)(nil).Classify(err) }

// check judges err bare, below a layer, and beside an unknown error.
func check(t *testing.T, name string, err error, want classify.Class) {
	t.Helper()
	testkit.Require(t, err != nil, "%s: no error", name)
	for place, err := range map[string]error{"bare": err, "wrapped": fmt.Errorf("w: %w", err), "joined": errors.Join(errors.New("a"), err)} {
		v := judge(err)
		testkit.Check(t, v.Class == want, "%s, %s: %v, want %v: %T %v", name, place, v.Class, want, err, err)
	}
}

// Feature D1: a letter has the stack that an error of pkg/errors carries.
func TestStackOfPkgErrors(t *testing.T) {
	b := shop.New(t, false)
	stop := b.Run(b.Channel().Attach, func(*message.Message) ([]*message.Message, error) {
		return nil, classify.Permanent(pkgerrors.New("traced"))
	})
	defer stop()
	b.Publish(shop.Numbered(1)...)
	b.Eventually("it is dead-lettered", func() bool { return len(b.Waiting()) == 1 })
	stack := b.Waiting()[0].Letter.Failure.Stack
	testkit.Check(t, strings.Contains(stack, "verdicts_test.TestStackOfPkgErrors"),
		"the letter has the stack %q", stack)
}

// Features C4, C7: what cenkalti/backoff/v5 calls permanent is permanent unless it is marked, and its RetryAfter is
// kept. An open breaker passes with time, and something is unavailable: gobreaker's, and that of Watermill's
// CircuitBreaker.
func TestKnowledgeBackoffAndBreakers(t *testing.T) {
	for _, cause := range []error{errors.New("no such customer"), context.DeadlineExceeded} {
		err := backoff.Permanent(cause)
		check(t, "backoff", err, classify.ClassPermanent)
		testkit.Equal(t, "marked transient", judge(classify.Transient(err)).Class, classify.ClassTransient)
	}
	testkit.Equal(t, "retry after", judge(fmt.Errorf("call: %w", backoff.RetryAfter(3))).RetryAfter, 3*time.Second)
	breaker := wm.NewCircuitBreaker(gobreaker.Settings{ReadyToTrip: func(gobreaker.Counts) bool { return true }})
	h := breaker.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, errors.New("down") })
	_, _ = h(message.NewMessage("1", nil))
	_, open := h(message.NewMessage("2", nil))
	for _, err := range []error{gobreaker.ErrOpenState, gobreaker.ErrTooManyRequests, open} {
		check(t, "breaker", err, classify.ClassTransient)
		testkit.Check(t, judge(err).Unavailable, "nothing is unavailable: %v", err)
	}
}
