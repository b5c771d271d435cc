package verdicts_test

import (
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/pkg/errors"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
)

// Feature D1: a letter has the stack that an error of pkg/errors carries.
func TestStackOfPkgErrors(t *testing.T) {
	b := shop.New(t, false)
	stop := b.Run(b.Channel().Attach, func(*message.Message) ([]*message.Message, error) {
		return nil, classify.Permanent(errors.New("traced"))
	})
	defer stop()
	b.Publish(shop.Numbered(1)...)
	b.Eventually("it is dead-lettered", func() bool { return len(b.Waiting()) == 1 })
	if stack := b.Waiting()[0].Letter.Failure.Stack; !strings.Contains(stack, "verdicts_test.TestStackOfPkgErrors") {
		t.Errorf("the letter has the stack %q", stack)
	}
}
