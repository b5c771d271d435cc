package frontdoor_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testkit/shop"
	"github.com/watermill-spillway/spillway/privacy"
)

func TestMain(m *testing.M) {
	// A router whose Run fails at start-up, as one test wants, leaves this goroutine of its own behind.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"))
}

type bench struct{ *shop.Shop }

func newBench(t *testing.T, persistent bool) *bench { return &bench{shop.New(t, persistent)} }

// masking returns a mask of the caller's own.
func masking(t *testing.T, secret, mask string) *privacy.Redactor {
	t.Helper()
	r, err := privacy.New(privacy.Rules{Mask: func(text string) string { return strings.ReplaceAll(text, secret, mask) }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
