package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware"
)

// must is for examples: a program handles its errors.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// A payment provider is unavailable for a moment: the third attempt gets through.
func ExampleRetry() {
	retry := must(middleware.NewRetry(middleware.RetryConfig{
		Attempts: 4,
		Backoff:  middleware.Backoff{Initial: time.Millisecond},
		PerClass: map[classify.Class]middleware.Policy{classify.ClassTransient: {Attempts: 2}},
		Hooks: middleware.RetryHooks{OnAttempt: func(_ context.Context, a middleware.Attempt) {
			fmt.Printf("attempt %d: %v\n", a.Number, a.Err)
		}},
	}))
	calls := 0
	handle := retry.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		if calls++; calls < 3 {
			return nil, errors.New("provider is unavailable")
		}
		return nil, nil
	})
	_, err := handle(message.NewMessage("order-1", nil))
	fmt.Println("in the end:", err)

	locked := retry.Middleware(func(*message.Message) ([]*message.Message, error) {
		return nil, classify.Transient(errors.New("account is locked"))
	})
	_, err = locked(message.NewMessage("order-2", nil))
	var failure *classify.Failure // the story of the attempts, which a dead letter carries
	fmt.Println(errors.As(err, &failure), failure.Attempts, failure.Verdict.Class, len(failure.History))
	// Output:
	// attempt 1: provider is unavailable
	// attempt 2: provider is unavailable
	// attempt 3: <nil>
	// in the end: <nil>
	// attempt 1: account is locked
	// attempt 2: account is locked
	// true 2 transient 2
}

// Handlers that call the same service share one budget: their further attempts together stay under a tenth of their
// messages, and five a second.
func ExampleNewBudget() {
	budget := must(middleware.NewBudget(middleware.Budget{Share: 0.1, PerSecond: 5}))
	retry, err := middleware.NewRetry(middleware.RetryConfig{
		Attempts: 4,
		Budget:   budget,
		Hooks: middleware.RetryHooks{OnBudgetSpent: func(_ context.Context, s middleware.BudgetSpent) {
			fmt.Printf("%s: goes to its next stage: %t\n", s.Traffic, s.ToStage)
		}},
	})
	fmt.Println(len(retry.Budgets()), "spent", err)

	_, err = middleware.NewBudget(middleware.Budget{TTL: time.Hour})
	fmt.Println(err)
	// Output:
	// 0 spent <nil>
	// middleware: Budget.TTL is 1h0m0s: it must be from 1s to 1m0s
}

// A bug in the handler becomes an error that says it is of no use to try again.
func ExampleRecover() {
	handle := middleware.Recover(func(msg *message.Message) ([]*message.Message, error) {
		fields := strings.Split(string(msg.Payload), ";")
		fmt.Println("amount:", fields[2])
		return nil, nil
	})
	_, err := handle(message.NewMessage("order-1", []byte("acme;30")))
	fmt.Println(err)

	var classifier *classify.Classifier // the zero configuration
	var panicked *classify.PanicError
	fmt.Println(classifier.Classify(err).Class, errors.As(err, &panicked), len(panicked.Stack) > 0)
	// Output:
	// panic: runtime error: index out of range [2] with length 2
	// permanent true true
}
