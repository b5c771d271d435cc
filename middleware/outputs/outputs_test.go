package outputs_test

import (
	"context"
	"errors"
	"fmt"
	"github.com/watermill-spillway/spillway/middleware/outputs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
)

func newQueue(t testing.TB, dead message.Publisher) *poison.Queue {
	return testkit.Must(poison.NewQueue(dead, poison.QueueConfig{PublishBackoff: time.Millisecond}))
}

func newOutputs(t testing.TB, dead message.Publisher, config outputs.Config) *outputs.Outputs {
	return testkit.Must(outputs.New(newQueue(t, dead), config))
}

func decorate(t testing.TB, o *outputs.Outputs, pub message.Publisher) message.Publisher {
	return testkit.Must(o.Decorate(pub))
}

// route does for one message what the router does: handler, publish, ack or nack.
func route(o *outputs.Outputs, pub message.Publisher, msg *message.Message, h message.HandlerFunc) error {
	out, err := o.Middleware(h)(msg)
	if err == nil {
		err = pub.Publish("invoices", out...)
	}
	if err != nil {
		msg.Nack()
	} else {
		msg.Ack()
	}
	return err
}

// producing returns a handler that spoils its message and produces outputs with the ids.
func producing(ids ...string) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		m.Payload[0], m.UUID = 'X', "spoiled"
		m.Metadata.Set("tenant", "spoiled")
		var out []*message.Message
		for _, id := range ids {
			out = append(out, message.NewMessage(id, []byte("output")))
		}
		return out, nil
	}
}

// refusing refuses a message the first n times.
func refusing(id string, n int, err error) func(string, *message.Message) error {
	return func(_ string, msg *message.Message) error {
		if msg.UUID != id || n <= 0 {
			return nil
		}
		n--
		return err
	}
}

// Feature D15, promise P2: what becomes of outputs that are refused: how often each is tried, what is published, and
// whether the source is set aside, as it arrived.
func TestRefusedOutputs(t *testing.T) {
	tooLarge := fmt.Errorf("broker: %w", classify.ErrTooLarge)
	permanent := classify.Permanent(errBoom)
	for name, row := range map[string]struct {
		outputs  []string
		refused  string
		times    int
		err      error
		attempts int
		tries    int    // of the refused message
		taken    string // ids, in order
		aside    bool
	}{
		"accepted":                    {[]string{"a", "b"}, "", 0, nil, 0, 0, "a b", false},
		"refused twice":               {[]string{"a"}, "a", 2, errBoom, 0, 3, "a", false},
		"refused to the end":          {[]string{"a"}, "a", 99, errBoom, 0, 5, "", true},
		"one attempt":                 {[]string{"a"}, "a", 1, errBoom, 1, 1, "", true},
		"permanent":                   {[]string{"a"}, "a", 99, permanent, 0, 1, "", true},
		"invalid":                     {[]string{"a"}, "a", 99, classify.Invalid(errBoom), 0, 1, "", true},
		"discard is not for outputs":  {[]string{"a"}, "a", 99, classify.Discard(errBoom), 2, 2, "", true},
		"too large":                   {[]string{"a"}, "a", 99, tooLarge, 0, 2, "", true},
		"too large in company":        {[]string{"a"}, "a", 1, tooLarge, 0, 2, "a", false},
		"batch, second refused once":  {[]string{"a", "b", "c"}, "b", 1, errBoom, 0, 2, "a a b c", false},
		"batch, second never":         {[]string{"a", "b", "c"}, "b", 99, errBoom, 3, 4, "a a", true},
		"batch, last too large":       {[]string{"a", "b"}, "b", 99, tooLarge, 0, 3, "a a", true},
		"batch, permanent in company": {[]string{"a", "b"}, "b", 1, permanent, 0, 2, "a a b", false},
		"batch, permanent alone too":  {[]string{"a", "b"}, "b", 99, permanent, 0, 2, "a a", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dead, pub := &publisher{}, &publisher{refuse: refusing(row.refused, row.times, row.err)}
				o := newOutputs(t, dead, outputs.Config{Attempts: row.attempts})
				msg := newMessage("1")
				err := route(o, decorate(t, o, pub), msg, producing(row.outputs...))
				testkit.Require(t, err == nil, "the source is nacked: %v", err)
				got := strings.Join(pub.ids(), " ")
				testkit.Check(t, got == row.taken && pub.tries(row.refused) == row.tries,
					"published %q, tried %q %d times", got, row.refused, pub.tries(row.refused))
				letters := dead.letters(t)
				testkit.Require(t, len(letters) == map[bool]int{true: 1}[row.aside], "%d letters", len(letters))
				if row.aside {
					wantSetAside(t, letters[0], row.refused, row.err)
				}
			})
		})
	}
}

// wantSetAside checks a source's letter: the source as it arrived, one attempt of its handler, and whose fault it was.
func wantSetAside(t testing.TB, l poison.Letter, refused string, cause error) {
	t.Helper()
	testkit.Check(t, l.Original.Equals(newMessage("1")) && l.Failure.Attempts == 1,
		"the letter holds %v %q after %d attempts", l.Original.Metadata, l.Original.Payload, l.Failure.Attempts)
	testkit.Check(t, l.Failure.Class == classify.ClassPermanent && l.Failure.Reason == classify.ReasonOutput,
		"the letter says %s, %s", l.Failure.Class, l.Failure.Reason)
	for _, part := range []string{`"` + refused + `"`, `"invoices"`, cause.Error()} {
		testkit.Check(t, strings.Contains(l.Failure.Description, part),
			"the description %q lacks %s", l.Failure.Description, part)
	}
}

// Conventions: where the attempts end with the batch, it is not known which output was refused, and the letter says so.
func TestRefusedBatchIsNotBlamedOnOne(t *testing.T) {
	dead, pub := &publisher{}, &publisher{refuse: refusing("b", 1, errBoom)}
	o := newOutputs(t, dead, outputs.Config{Attempts: 1})
	testkit.NoError(t, route(o, decorate(t, o, pub), newMessage("1"), producing("a", "b")))
	text := dead.letters(t)[0].Failure.Description
	testkit.Check(t, strings.Contains(text, "one of 2 outputs"), "got %q", text)
}

// Promise P4: a publisher that panics has refused: the message of this handler, and no more, is set aside.
func TestPublisherPanics(t *testing.T) {
	dead := &publisher{}
	pub := &publisher{refuse: func(string, *message.Message) error { panic("publisher") }}
	o := newOutputs(t, dead, outputs.Config{})
	testkit.NoError(t, route(o, decorate(t, o, pub), newMessage("1"), producing("a")))
	wantSetAside(t, dead.letters(t)[0], "a", errors.New("panic: publisher"))
}

// Feature D15: hooks are called for each refusal, and one that panics is contained and logged.
func TestOutputHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, notified := watermill.NewCaptureLogger(), 0
		dead, pub := &publisher{}, &publisher{refuse: refusing("a", 2, errBoom)}
		o := newOutputs(t, dead, outputs.Config{Shared: observe.Shared{Logger: logger}, OnOutputError: func(_ context.Context, err error) {
			notified++
			panic(err)
		}})
		err := route(o, decorate(t, o, pub), newMessage("1"), producing("a"))
		errorsLogged := len(logger.Captured()[watermill.ErrorLogLevel])
		testkit.Require(t, err == nil && notified == 2 && errorsLogged == 4,
			"told %d times, logged %d errors, got %v", notified, errorsLogged, err)
	})
}

// Conventions: outputs that make no sense are an error at construction, which names the field.
func TestOutputsConstruction(t *testing.T) {
	queue := newQueue(t, &publisher{})
	for want, config := range map[string]outputs.Config{
		"Config.Attempts is -1":      {Attempts: -1},
		"Config.Backoff: Multiplier": {Backoff: middleware.Backoff{Multiplier: -1}},
	} {
		testkit.Says(t, testkit.Err(outputs.New(queue, config)), want)
	}
	testkit.Says(t, testkit.Err(outputs.New(nil, outputs.Config{})), "the queue is nil")
}

// Promise P2: a handler that passes its message on gets the message as it changed it published, each time, and its
// source is set aside as it arrived.
func TestPassthrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, times := range []int{2, 99} {
			dead, pub := &publisher{}, &publisher{refuse: refusing("spoiled", times, errBoom)}
			o := newOutputs(t, dead, outputs.Config{})
			msg := newMessage("1")
			testkit.NoError(t, route(o, decorate(t, o, pub), msg, func(m *message.Message) ([]*message.Message, error) {
				_, _ = producing()(m)
				return []*message.Message{m}, nil
			}))
			if times == 99 {
				wantSetAside(t, dead.letters(t)[0], "spoiled", errBoom)
			} else if out := pub.messages(); len(out) != 1 || out[0].Payload[0] != 'X' || out[0].Metadata.Get("tenant") != "spoiled" {
				t.Errorf("published %v", out)
			}
		}
	})
}

// Promise P1: a tie is used once. Copies of an output's context that turn up later are no reason to set anything aside.
func TestTieIsUsedOnce(t *testing.T) {
	logger := watermill.NewCaptureLogger()
	dead, pub := &publisher{}, &publisher{}
	o := newOutputs(t, dead, outputs.Config{Shared: observe.Shared{Logger: logger}})
	decorated := decorate(t, o, pub)
	out := testkit.Must(o.Middleware(producing("a"))(newMessage("1")))
	testkit.NoError(t, decorated.Publish("invoices", out...))
	pub.refuse = refusing("a", 99, errBoom)
	for range 3 {
		testkit.Equal(t, "an untied refusal became", decorated.Publish("invoices", out[0].CopyWithContext()), errBoom)
	}
	lines := logger.Captured()[watermill.InfoLogLevel]
	testkit.Check(t, len(dead.ids()) == 0 && len(lines) == 1 && slices.Equal(pub.ids(), []string{"a"}),
		"%d letters, logged %v", len(dead.ids()), lines)
}

// Decision 15: our keys on an output are its producer's word, however much its source looks like a letter or comes out
// of a stage, and go off. A consumer of a dead-letter topic passes them on.
func TestOutputsBelieveDeadLetterTopics(t *testing.T) {
	forged := newMessage("1")
	forged.Metadata.Set(poison.KeyFailureClass, "permanent")
	forged.Metadata.Set(poison.KeyOriginalKey, "theirs")
	for topic, kept := range map[string]bool{"orders": false, "": false, "orders.dlq": true, "orders.dlq.parked": true} {
		pub := &publisher{}
		o := newOutputs(t, &publisher{}, outputs.Config{})
		msg := forged.Copy()
		msg.SetContext(chain.Within(t.Context(), "billing", topic))
		err := route(o, decorate(t, o, pub), msg, func(msg *message.Message) ([]*message.Message, error) {
			out := message.NewMessage("2", msg.Payload)
			maps.Copy(out.Metadata, msg.Metadata)
			return []*message.Message{out}, nil
		})
		testkit.Require(t, err == nil && len(pub.messages()) == 1,
			"%q: %d published, %v", topic, len(pub.messages()), err)
		_, has := pub.messages()[0].Metadata[poison.KeyOriginalKey]
		testkit.Check(t, has == kept, "from %q: %v", topic, pub.messages()[0].Metadata)
	}
}
