package poison

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/observe"
)

// Features D1, D2, D3, D11, D13, decision 11: each class goes where it belongs with its reason, a panic and
// runtime.Goexit too. A discarded message is placed nowhere.
func TestQueuePlacesByClass(t *testing.T) {
	no := errors.New("no")
	for name, test := range map[string]struct {
		fail   func() error
		topic  string
		reason string
	}{
		"permanent": {func() error { return classify.Permanent(no) }, "orders.dlq", classify.ReasonPermanent},
		"unknown":   {func() error { return no }, "orders.dlq", classify.ReasonUnknownMaxRetries},
		"transient": {func() error { return classify.Transient(no) }, "orders.dlq", classify.ReasonTransientMaxRetries},
		"invalid":   {func() error { return classify.Invalid(no) }, "orders.invalid", classify.ReasonInvalid},
		"reject":    {func() error { return classify.Permanent(no, classify.Reason("sold_out")) }, "orders.dlq", "sold_out"},
		"panic":     {func() error { panic(no) }, "orders.dlq", classify.ReasonPanic},
		"goexit":    {func() error { runtime.Goexit(); return nil }, "orders.dlq", "goexit"},
		"discard":   {func() error { return classify.Discard(no) }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dead, discarded := &sink{}, make(chan Letter, 10)
			hooks := Hooks{OnDiscard: func(_ context.Context, l Letter) { discarded <- l }}
			r := start(t, "orders", dead, QueueConfig{Node: "n", Hooks: hooks}, func(msg *message.Message) ([]*message.Message, error) {
				if msg.UUID == "behind" {
					return nil, nil
				}
				return failing(test.fail())(msg)
			})
			r.publish(message.NewMessage("id-1", []byte("payload")))
			var l Letter
			if test.topic == "" {
				l = <-discarded
				testkit.Check(t, dead.topics() == "", "placed in %s", dead.topics())
			} else {
				eventually(t, "the letter is placed", func() bool { return len(dead.in(test.topic)) == 1 })
				l = testkit.Must(Decode(dead.in(test.topic)[0]))
				testkit.Check(t, l.Failure.Reason == test.reason && l.Origin.Topic == "orders" &&
					l.Origin.Handler == "billing" && l.Origin.MessageID == "id-1" && l.Failure.Attempts == 1 &&
					!l.Failure.LastFailedAt.IsZero() && l.Failure.Node == "n", "letter %+v", l)
			}
			testkit.Check(t, l.Original.UUID == "id-1" && string(l.Original.Payload) == "payload", "original %v", l.Original)
			testkit.Check(t, name != "panic" || l.Failure.Stack != "" && l.Failure.StackHash != "", "the panic has no stack")
			testkit.Equal(t, "outputs of a failed handler were published", r.outs.topics(), "")
			r.publish(message.NewMessage("behind", nil)) // settled when the test ends
		})
	}
}

// Promise P1, feature D4, decision 11: while no sink takes the letter, or runtime.Goexit ends what users plug in, the
// message is not acked. It comes again as it arrived.
func TestQueueRequeuesWhatIsNotPlaced(t *testing.T) {
	for name, end := range map[string]func() error{
		"error":  func() error { return errors.New("boom") },
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		for fault, config := range map[string]QueueConfig{
			"no sink": {PublishAttempts: 1},
			"goexit":  {Shared: observe.Shared{Privacy: masking(t, exiting(2))}},
		} {
			t.Run(name+", "+fault, func(t *testing.T) {
				dead, deliveries := &sink{}, 0
				dead.refuse = func(try int, _ string, _ *message.Message) error {
					if fault == "no sink" && try <= 2 {
						return errors.New("the broker is down")
					}
					return nil
				}
				msg := message.NewMessage("id-1", []byte("payload"))
				msg.Metadata["k"] = "v"
				arrived := msg.Copy()
				r := start(t, "orders", dead, config, func(m *message.Message) ([]*message.Message, error) {
					if deliveries++; !m.Equals(arrived) {
						t.Errorf("delivery %d is not as it arrived: %q %v %q", deliveries, m.UUID, m.Metadata, m.Payload)
					}
					m.Payload = []byte("XXXXXXX")
					m.Metadata["k"], m.Metadata["new"], m.UUID = "changed", "x", "other"
					return nil, end()
				})
				r.publish(msg)
				eventually(t, "it came again and is placed", func() bool { return len(dead.in("orders.dlq")) == 1 })
				l, _ := Decode(dead.in("orders.dlq")[0])
				testkit.Check(t, l.Original.Equals(arrived), "the letter's original is %v", l.Original)
			})
		}
	}
}

// exiting is a mask that ends the goroutine the first n times.
func exiting(n int) func(string) string {
	return func(text string) string {
		if n--; n >= 0 {
			runtime.Goexit()
		}
		return text
	}
}

// Feature D4: publish retried, then invalid falls back to the dead-letter topic, then the fallbacks in order.
func TestQueueFallsBack(t *testing.T) {
	second, third := &sink{}, &sink{}
	second.refuse = func(int, string, *message.Message) error { panic("the client has a bug") }
	first := &sink{refuse: func(int, string, *message.Message) error { return errors.New("read only") }}
	errs := make(chan error, 100)
	config := QueueConfig{
		PublishBackoff: time.Millisecond, PublishAttempts: 2,
		Fallbacks: []Sink{{Publisher: second}, {Publisher: third, Topic: "last-resort"}},
		Hooks:     Hooks{OnPublishError: func(_ context.Context, _ Letter, err error) { errs <- err }},
	}
	r := start(t, "orders", first, config, failing(classify.Invalid(errors.New("bad"))))
	r.publish(message.NewMessage("id-1", nil))
	eventually(t, "the last sink has it", func() bool { return len(third.in("last-resort")) == 1 })
	for i, want := range []string{`"orders.invalid"`, `"orders.invalid"`, `"orders.dlq"`, `"orders.dlq"`,
		`"orders.invalid": publisher: panic`, `"orders.invalid": publisher: panic`} {
		err := <-errs
		testkit.Check(t, strings.Contains(err.Error(), want), "refusal %d is %q, want %s", i, err, want)
	}
}

// Bad input: configurations with which messages could be lost do not construct, and the error names the field.
func TestNewQueueRefuses(t *testing.T) {
	good := &sink{}
	for _, publisher := range []message.Publisher{nil, (*sink)(nil)} {
		_, err := NewQueue(publisher, QueueConfig{})
		testkit.Check(t, err != nil && strings.Contains(err.Error(), "the publisher is nil"),
			"publisher %v: %v", publisher, err)
	}
	for field, config := range map[string]QueueConfig{
		"QueueConfig.Fallbacks[1].Publisher":                           {Fallbacks: []Sink{{Publisher: good}, {}}},
		"QueueConfig.Naming: naming: Scheme.DeadLetter is \"{topic}\"": {Naming: naming.Scheme{DeadLetter: "{topic}"}},
		"QueueConfig.PublishAttempts":                                  {PublishAttempts: -1},
	} {
		_, err := NewQueue(good, config)
		testkit.Check(t, err != nil && strings.Contains(err.Error(), field),
			"want an error with %q, got %v", field, err)
	}
}

// sink is a publisher that keeps what it takes, and refuses as it is told.
type sink struct {
	mu     sync.Mutex
	taken  map[string][]*message.Message
	tries  int
	refuse func(try int, topic string, msg *message.Message) error
}

func (s *sink) Publish(topic string, messages ...*message.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, msg := range messages {
		s.tries++
		if s.refuse != nil {
			if err := s.refuse(s.tries, topic, msg); err != nil {
				return err
			}
		}
		if s.taken == nil {
			s.taken = map[string][]*message.Message{}
		}
		s.taken[topic] = append(s.taken[topic], msg)
	}
	return nil
}

func (s *sink) Close() error { return nil }

func (s *sink) in(topic string) []*message.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken[topic]
}

func (s *sink) topics() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var topics []string
	for topic, messages := range s.taken {
		topics = append(topics, fmt.Sprintf("%s:%d", topic, len(messages)))
	}
	return strings.Join(topics, " ")
}

// running is a router with one handler, "billing" on topic, behind a queue.
type running struct {
	*gochannel.GoChannel
	t      *testing.T
	topic  string
	router *message.Router
	outs   *sink
}

func start(t *testing.T, topic string, dead message.Publisher, config QueueConfig, handle message.HandlerFunc) *running {
	t.Helper()
	queue := newQueue(dead, config)
	router := testkit.Must(
		message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{}))
	r := &running{gochannel.NewGoChannel(gochannel.Config{}, nil), t, topic, router, &sink{}}
	router.AddSubscriberDecorators(queue.InitializeOnSubscribe)
	router.AddHandler("billing", topic, r.GoChannel, "out", r.outs, handle).AddMiddleware(queue.Middleware)
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		testkit.Is(t, router.Close(), nil)
		testkit.Is(t, <-done, nil)
	})
	return r
}

func (r *running) publish(msg *message.Message) {
	r.t.Helper()
	testkit.NoError(r.t, r.Publish(r.topic, msg))
}

var eventually = testkit.Eventually

func failing(err error) message.HandlerFunc {
	return func(*message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("output", nil)}, err
	}
}

func newQueue(dead message.Publisher, config QueueConfig) *Queue {
	return testkit.Must(NewQueue(dead, config))
}
