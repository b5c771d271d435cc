package poison

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature D14: without any configuration no credential of an error is in the letter's texts, in the hooks, or in the
// error that the router gets. Payload and metadata keep their bytes.
func TestQueueMasksByDefault(t *testing.T) {
	const secret = "hunter2"
	failure := fmt.Errorf("connect postgres://ops:%s@db/x: %w", secret, errors.New("password="+secret))
	for name, c := range map[string]struct {
		fail  func() error
		known string // what stays readable
	}{
		"error":       {func() error { return failure }, "connect postgres://ops:[redacted]@db/x: password=[redacted]"},
		"panic":       {func() error { panic(failure) }, "panic: connect postgres://ops:[redacted]@db/x"},
		"reason":      {func() error { return classify.Permanent(failure, classify.Reason("password="+secret)) }, "[redacted]"},
		"description": {func() error { return classify.Permanent(failure, classify.Description("password="+secret)) }, "password=[redacted]"},
		"cut before": {func() error {
			return errors.New(strings.Repeat("x", 230-4-10) + " amqp://a:" + secret + "@b" + strings.Repeat(" y", 40))
		}, "xxx"},
		"cut panic": {func() error {
			panic(strings.Repeat("x", 4096-40) + " amqp://a:" + secret + "@b " + strings.Repeat("y ", 100))
		}, "xxx"},
	} {
		for _, refused := range []bool{false, true} {
			t.Run(fmt.Sprint(name, refused), func(t *testing.T) {
				var shown []string
				hook := func(_ context.Context, l Letter) {
					shown = append(shown, fmt.Sprintf("%+v", l.Failure))
					testkit.Check(t, string(l.Original.Payload) == "password=hunter2" &&
						l.Original.Metadata["password"] == secret, "the original is changed: %v", l.Original)
				}
				failed := func(_ context.Context, l Letter, err error) {
					shown = append(shown, fmt.Sprintf("%+v %v %+v", l.Failure, err, err))
				}
				taken := &sink{refuse: func(int, string, *message.Message) error {
					if refused {
						return fmt.Errorf("publish to amqp://a:%s@b/", secret)
					}
					return nil
				}}
				queue := newQueue(t, taken, QueueConfig{PublishAttempts: 1, Hooks: Hooks{OnDeadLetter: hook, OnUnplaced: failed, OnPublishError: failed}})
				msg := message.NewMessage("m", []byte("password=hunter2"))
				msg.Metadata["password"] = secret
				_, err := queue.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, c.fail() })(msg)
				testkit.Require(t, (err != nil) == refused, "%v", err)
				if err != nil {
					shown = append(shown, fmt.Sprintf("%v %+v", err, err))
					testkit.Check(t, name != "error" || errors.Is(err, failure),
						"the error does not wrap that of the handler")
				}
				for _, l := range taken.in("unknown.dlq") {
					metadata := maps.Clone(l.Metadata)
					testkit.Check(t, string(l.Payload) == "password=hunter2" && metadata["password"] == secret,
						"the letter's message is changed: %v", l)
					delete(metadata, "password")
					shown = append(shown, fmt.Sprint(metadata))
				}
				all := strings.Join(shown, "\n")
				if len(shown) < 2 || strings.Contains(all, secret) || strings.Contains(all, secret[:4]) || !strings.Contains(all, c.known) {
					t.Errorf("%d shown: %s", len(shown), all)
				}
			})
		}
	}
}
