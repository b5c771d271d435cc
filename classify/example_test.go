package classify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/classify"
)

// A handler marks what it knows of an error, and leaves the rest to rules and knowledge.
func Example() {
	var errSoldOut = errors.New("sold out")
	handle := func(payload string) error {
		var order struct {
			ID    string
			Count int
		}
		if err := json.Unmarshal([]byte(payload), &order); err != nil {
			return fmt.Errorf("order: %w", err) // known to be invalid
		}
		switch {
		case order.ID == "":
			return classify.Invalid(errors.New("order without an id"), classify.Reason("order_without_id"))
		case order.Count == 0:
			return classify.Discard(errors.New("nothing ordered"))
		case order.ID == "locked":
			return classify.Transient(errors.New("in use"), classify.RetryAfter(time.Minute))
		case order.Count > 100:
			return classify.Permanent(errSoldOut, classify.Reason("sold_out"), classify.Description("Offer another."))
		}
		return fmt.Errorf("stock: %w", context.DeadlineExceeded) // known to be transient
	}
	var judge *classify.Classifier // nil judges by marks and built-in knowledge
	for _, payload := range []string{
		`{`, `{}`, `{"ID":"a"}`, `{"ID":"a","Count":500}`, `{"ID":"a","Count":5}`, `{"ID":"locked","Count":1}`,
	} {
		v := judge.Classify(handle(payload))
		fmt.Printf("%s %q\n", v.Class, v.Reason)
	}
	// Output:
	// invalid "unmarshal_error"
	// invalid "order_without_id"
	// discard ""
	// permanent "sold_out"
	// transient ""
	// transient ""
}

type statusError struct{ code int }

func (e *statusError) Error() string { return fmt.Sprint("status ", e.code) }

// Rules say what errors of third parties mean. The first that answers wins.
func ExampleNew() {
	errClosed := errors.New("shop closed")
	judge, err := classify.New(classify.Config{
		Rules: []classify.Rule{
			classify.Is(errClosed, classify.Verdict{Class: classify.ClassTransient, RetryAfter: time.Hour}),
			classify.As(func(e *statusError) classify.Verdict {
				switch {
				case e.code == 429:
					return classify.Verdict{Class: classify.ClassTransient, RetryAfter: 30 * time.Second}
				case e.code >= 400 && e.code < 500:
					return classify.Verdict{Class: classify.ClassPermanent, Reason: "refused"}
				}
				return classify.Verdict{} // no answer
			}),
		},
		OnRulePanic: func(text string, _ []byte) { fmt.Println(text) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, err := range []error{
		fmt.Errorf("order 7: %w", errClosed), &statusError{429}, &statusError{404}, &statusError{500},
	} {
		v := judge.Classify(err)
		fmt.Println(err, "is", v.Class, v.Reason, v.RetryAfter)
	}
	fmt.Println("too large:", judge.IsTooLarge(fmt.Errorf("publish: %w", classify.ErrTooLarge)))
	// Output:
	// order 7: shop closed is transient  1h0m0s
	// status 429 is transient  30s
	// status 404 is permanent refused 0s
	// status 500 is unknown  0s
	// too large: true
}

// Joined errors: the severest class wins, and only what is discarded as a whole is dropped.
func ExampleClassifier_Classify() {
	stale := classify.Discard(errors.New("stale"))
	for _, err := range []error{
		stale,
		errors.Join(stale, errors.New("rollback failed")),
		errors.Join(stale, classify.Permanent(errors.New("schema mismatch"))),
		classify.Discard(errors.Join(stale, errors.New("rollback failed"))),
	} {
		fmt.Println((*classify.Classifier)(nil).Classify(err).Class)
	}
	// Output:
	// discard
	// unknown
	// permanent
	// discard
}

// A handler that finds a lock held has not failed: its message comes again, and no attempt is counted.
func ExampleNotNow() {
	errLocked := errors.New("the account is locked by another booking")
	err := fmt.Errorf("book: %w", classify.NotNow(errLocked, classify.RetryAfter(2*time.Second)))

	var judge *classify.Classifier
	verdict := judge.Classify(err)
	fmt.Println(verdict.NotNow, verdict.Class, verdict.RetryAfter)
	// Output: true transient 2s
}

// A client of an HTTP service says when the service asked to be called again.
func ExampleRetryAfterHeader() {
	answer := func(status int, retryAfter string) error {
		err := fmt.Errorf("the warehouse answers %d", status)
		if status == 429 || status == 503 {
			return classify.Unavailable(err, classify.RetryAfterHeader(retryAfter))
		}
		return err
	}
	var judge *classify.Classifier
	v := judge.Classify(answer(429, "30"))
	fmt.Println(v.Class, v.Unavailable, v.RetryAfter)
	// Output: transient true 30s
}
