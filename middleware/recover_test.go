package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

type thrown struct{ code int }

//go:noinline
func explode(value any) { panic(value) }

// Feature C4, decision 11: whatever is thrown becomes a permanent error with no outputs, with the value and the stack
// of the function that threw it.
func TestRecoverPanics(t *testing.T) {
	var nilMap map[string]string
	for name, row := range map[string]struct {
		throw func()
		text  string
	}{
		"text":          {func() { explode("boom") }, "panic: boom"},
		"error":         {func() { explode(context.Canceled) }, "panic: context canceled"},
		"nil":           {func() { explode(nil) }, "panic: panic called with nil argument"},
		"custom type":   {func() { explode(thrown{42}) }, "panic: {code:42}"},
		"runtime error": {func() { nilMap["a"] = "b" }, "panic: assignment to entry in nil map"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := middleware.Recover(func(m *message.Message) ([]*message.Message, error) {
				row.throw()
				return []*message.Message{m}, nil
			})(newMessage("1"))
			var p *classify.PanicError
			testkit.Require(t, errors.As(err, &p) && out == nil, "got outputs %v and error %v", out, err)
			testkit.Check(t, strings.HasPrefix(err.Error(), row.text), "the error reads %q", err)
			function := "explode"
			if name == "runtime error" {
				function = "TestRecoverPanics"
			}
			testkit.Check(t, strings.Contains(string(p.Stack), function),
				"the stack does not show %s:\n%s", function, p.Stack)
			if v := verdict(err); v.Class != classify.ClassPermanent || v.Reason != classify.ReasonPanic {
				t.Errorf("the verdict is %+v", v)
			}
			testkit.Check(t, !errors.Is(err, context.Canceled),
				"the thrown error shows through: the router would not log it")
		})
	}
}

// Promise P4: a nil output, over which the router would panic on every delivery, is a permanent error that says which.
func TestRecoverNilOutput(t *testing.T) {
	out, err := middleware.Recover(func(m *message.Message) ([]*message.Message, error) {
		return []*message.Message{m, nil}, nil
	})(newMessage("1"))
	testkit.Require(t, out == nil && verdict(err).Class == classify.ClassPermanent &&
		strings.Contains(fmt.Sprint(err), "number 2 is nil"), "got outputs %v and error %v", out, err)
}
