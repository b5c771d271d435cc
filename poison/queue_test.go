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
	"github.com/watermill-spillway/spillway/internal/testkit"
)

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
	queue, err := NewQueue(dead, config)
	if err != nil {
		t.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	r := &running{gochannel.NewGoChannel(gochannel.Config{}, nil), t, topic, router, &sink{}}
	router.AddSubscriberDecorators(queue.InitializeOnSubscribe)
	router.AddHandler("billing", topic, r.GoChannel, "out", r.outs, handle).AddMiddleware(queue.Middleware)
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		if err := router.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *running) publish(msg *message.Message) {
	r.t.Helper()
	if err := r.Publish(r.topic, msg); err != nil {
		r.t.Fatal(err)
	}
}

var eventually = testkit.Eventually

func failing(err error) message.HandlerFunc {
	return func(*message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("output", nil)}, err
	}
}

// Features D1, D2, D3, D11, D13: each class goes where it belongs with its reason, and nothing a failed handler
// produced is published.
func TestQueuePlacesByClass(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		topic  string
		reason string
	}{
		"permanent": {classify.Permanent(errors.New("no")), "orders.dlq", classify.ReasonPermanent},
		"unknown":   {errors.New("what"), "orders.dlq", classify.ReasonUnknownMaxRetries},
		"transient": {classify.Transient(errors.New("later")), "orders.dlq", classify.ReasonTransientMaxRetries},
		"invalid":   {classify.Invalid(errors.New("bad")), "orders.invalid", classify.ReasonInvalid},
		"reject":    {Reject("no_such_customer", "customer 7 was deleted"), "orders.dlq", "no_such_customer"},
	} {
		t.Run(name, func(t *testing.T) {
			dead := &sink{}
			r := start(t, "orders", dead, QueueConfig{Node: "n"}, failing(test.err))
			r.publish(message.NewMessage("id-1", []byte("payload")))
			eventually(t, "the letter is placed", func() bool { return len(dead.in(test.topic)) == 1 })
			l, err := Decode(dead.in(test.topic)[0])
			if err != nil {
				t.Fatal(err)
			}
			if l.Failure.Reason != test.reason || l.Origin.Topic != "orders" || l.Origin.Handler != "billing" ||
				l.Origin.MessageID != "id-1" || l.Failure.Attempts != 1 || l.Failure.LastFailedAt.IsZero() || l.Failure.Node != "n" {
				t.Errorf("letter %+v", l)
			}
			if string(l.Original.Payload) != "payload" {
				t.Errorf("payload %q", l.Original.Payload)
			}
			if r.outs.topics() != "" {
				t.Errorf("outputs of a failed handler were published: %s", r.outs.topics())
			}
		})
	}
}

// Feature D2: a discarded message is acked and counted, and placed nowhere.
func TestQueueDiscards(t *testing.T) {
	dead, discarded := &sink{}, make(chan Letter, 10)
	r := start(t, "orders", dead, QueueConfig{Hooks: Hooks{OnDiscard: func(_ context.Context, l Letter) { discarded <- l }}},
		failing(classify.Discard(errors.New("too old to matter"))))
	r.publish(message.NewMessage("id-1", nil))
	if l := <-discarded; l.Original.UUID != "id-1" || l.Failure.Class != classify.ClassDiscard {
		t.Errorf("discarded %+v", l)
	}
	if dead.topics() != "" {
		t.Errorf("placed in %s", dead.topics())
	}
}

// Promise P1, feature D4: while no sink takes the letter the message is not acked and comes again as it arrived.
func TestQueueGivesBackWhatNoSinkTakes(t *testing.T) {
	var open bool
	dead := &sink{}
	dead.refuse = func(int, string, *message.Message) error {
		if open {
			return nil
		}
		return errors.New("the broker is down")
	}
	unplaced := make(chan Letter, 1000)
	deliveries := 0
	config := QueueConfig{PublishBackoff: time.Millisecond, Hooks: Hooks{OnUnplaced: func(_ context.Context, l Letter, _ error) { unplaced <- l }}}
	r := start(t, "orders", dead, config, func(msg *message.Message) ([]*message.Message, error) {
		if deliveries++; string(msg.Payload) != "payload" || msg.Metadata["k"] != "v" || len(msg.Metadata) != 1 || msg.UUID != "id-1" {
			t.Errorf("delivery %d is not as it arrived: %q %v %q", deliveries, msg.UUID, msg.Metadata, msg.Payload)
		}
		copy(msg.Payload, "XXXXXXX")
		msg.Metadata["k"], msg.Metadata["new"], msg.UUID = "changed", "x", "other"
		return nil, errors.New("boom")
	})
	msg := message.NewMessage("id-1", []byte("payload"))
	msg.Metadata["k"] = "v"
	r.publish(msg)
	<-unplaced
	<-unplaced
	dead.mu.Lock()
	open = true
	dead.mu.Unlock()
	eventually(t, "the letter is placed", func() bool { return len(dead.in("orders.dlq")) == 1 })
	l, _ := Decode(dead.in("orders.dlq")[0])
	if !l.Original.Equals(msg) {
		t.Errorf("the letter's original is %q %v %q", l.Original.UUID, l.Original.Metadata, l.Original.Payload)
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
	var said []string
	for range 6 {
		said = append(said, (<-errs).Error())
	}
	want := []string{`"orders.invalid"`, `"orders.invalid"`, `"orders.dlq"`, `"orders.dlq"`, `"orders.invalid": publisher: panic`, `"orders.invalid": publisher: panic`}
	for i := range want {
		if !strings.Contains(said[i], want[i]) {
			t.Errorf("refusal %d is %q, want %s", i, said[i], want[i])
		}
	}
}

// Feature D4, D6: a refusal for size is tried once more as it is, then cut to the bone.
func TestQueueShrinksWhatIsTooLarge(t *testing.T) {
	var sizes []int
	dead := &sink{}
	dead.refuse = func(_ int, _ string, msg *message.Message) error {
		size := 0
		for k, v := range msg.Metadata {
			size += len(k) + len(v)
		}
		if sizes = append(sizes, size); size > 2500 {
			return fmt.Errorf("kafka: message was Too Large")
		}
		return nil
	}
	r := start(t, "orders", dead, QueueConfig{}, failing(errors.New(strings.Repeat("long ", 1<<20))))
	r.publish(message.NewMessage("id-1", []byte("payload")))
	eventually(t, "the letter is placed", func() bool { return len(dead.in("orders.dlq")) == 1 })
	if len(sizes) != 3 || sizes[0] != sizes[1] || sizes[2] >= sizes[1] {
		t.Errorf("sizes tried: %v", sizes)
	}
	l, _ := Decode(dead.in("orders.dlq")[0])
	if !strings.HasPrefix(l.Failure.Description, "long ") || !strings.Contains(l.Failure.Description, "cut, ") || string(l.Original.Payload) != "payload" {
		t.Errorf("description %q", l.Failure.Description)
	}
}

// Decision 11, promise P4: a panic and runtime.Goexit become letters, and the message behind is handled.
func TestQueueSettlesPanicAndGoexit(t *testing.T) {
	dead := &sink{}
	r := start(t, "orders", dead, QueueConfig{}, func(msg *message.Message) ([]*message.Message, error) {
		switch msg.UUID {
		case "panic":
			panic("a bug")
		case "goexit":
			runtime.Goexit()
		}
		return []*message.Message{message.NewMessage("fine", nil)}, nil
	})
	for _, id := range []string{"panic", "goexit", "good"} {
		r.publish(message.NewMessage(id, nil))
	}
	eventually(t, "all are settled", func() bool { return len(dead.in("orders.dlq")) == 2 && len(r.outs.in("out")) == 1 })
	for _, msg := range dead.in("orders.dlq") {
		l, _ := Decode(msg)
		if l.Failure.Reason != l.Original.UUID || l.Failure.Class != classify.ClassPermanent {
			t.Errorf("%s has class %s and reason %s", l.Original.UUID, l.Failure.Class, l.Failure.Reason)
		}
		if l.Failure.Reason == "panic" && (l.Failure.Stack == "" || l.Failure.StackHash == "") {
			t.Error("the panic has no stack")
		}
	}
}

// Promise P1, decision 11: after Goexit with a sink that refuses, the message is nacked and comes again.
func TestQueueNacksGoexitWithoutSink(t *testing.T) {
	dead := &sink{refuse: func(try int, _ string, _ *message.Message) error {
		if try <= 2 {
			return errors.New("down")
		}
		return nil
	}}
	r := start(t, "orders", dead, QueueConfig{PublishAttempts: 1}, func(*message.Message) ([]*message.Message, error) {
		runtime.Goexit()
		return nil, nil
	})
	r.publish(message.NewMessage("id", nil))
	eventually(t, "the third delivery is placed", func() bool { return len(dead.in("orders.dlq")) == 1 })
}

// Feature D12: a dead letter whose own consumer fails is parked, and its origin stays.
func TestQueueParksDeadLetters(t *testing.T) {
	dead := &sink{}
	r := start(t, "orders.dlq", dead, QueueConfig{}, failing(errors.New("the consumer of letters has a bug")))
	r.publish(sampleLetter().Encode())
	eventually(t, "the letter is parked", func() bool { return len(dead.in("orders.dlq.parked")) == 1 })
	l, _ := Decode(dead.in("orders.dlq.parked")[0])
	if l.Origin.Topic != "orders" || l.Origin.Handler != "billing" || l.Failure.Description != "the consumer of letters has a bug" || l.Redrive.Count != 2 {
		t.Errorf("parked %+v", l)
	}
	if topics := dead.topics(); topics != "orders.dlq.parked:1" {
		t.Errorf("placed in %s", topics)
	}
}

// A letter that somebody moved back to its own topic by hand fails like any message of that topic.
func TestQueueTakesLettersMovedBackByHand(t *testing.T) {
	dead := &sink{}
	r := start(t, "orders", dead, QueueConfig{}, failing(errors.New("still broken")))
	r.publish(sampleLetter().Encode())
	eventually(t, "it is a dead letter again", func() bool { return len(dead.in("orders.dlq")) == 1 })
}

// Promise P3, decision 2: nacked by its handler, a message is on its way back and is not placed too; acked by its
// handler, which ends its context, it has not gone away.
func TestQueueHandlerSettlesItself(t *testing.T) {
	dead := &sink{}
	nacked := false
	r := start(t, "orders", dead, QueueConfig{}, func(msg *message.Message) ([]*message.Message, error) {
		switch {
		case msg.UUID == "nack" && !nacked:
			nacked = true
			msg.Nack()
			return nil, errors.New("nacked")
		case msg.UUID == "ack":
			msg.Ack()
			<-msg.Context().Done()
			return nil, errors.New("failed after the ack")
		}
		return []*message.Message{message.NewMessage(msg.UUID, nil)}, nil
	})
	r.publish(message.NewMessage("nack", nil))
	r.publish(message.NewMessage("ack", nil))
	eventually(t, "both are settled", func() bool { return len(dead.in("orders.dlq")) == 1 && len(r.outs.in("out")) == 1 })
	if got := dead.in("orders.dlq")[0].UUID; got != "ack" {
		t.Errorf("placed %q", got)
	}
}

// Feature D14: masks see every text and every value before anybody else; where one panics the value is withheld.
func TestQueueMasks(t *testing.T) {
	hide := func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }
	for name, config := range map[string]QueueConfig{
		"masks":  {MaskText: hide, MaskMetadata: func(_, value string) string { return hide(value) }},
		"panics": {MaskText: func(string) string { panic("hunter2") }, MaskMetadata: func(string, string) string { panic("hunter2") }},
	} {
		t.Run(name, func(t *testing.T) {
			dead := &sink{}
			r := start(t, "orders", dead, config, func(*message.Message) ([]*message.Message, error) { panic(errors.New("password=hunter2")) })
			msg := message.NewMessage("id", []byte("hunter2 in the payload stays"))
			msg.Metadata["secret"] = "hunter2"
			r.publish(msg)
			eventually(t, "the letter is placed", func() bool { return len(dead.in("orders.dlq")) == 1 })
			letter := dead.in("orders.dlq")[0]
			for key, value := range letter.Metadata {
				if strings.Contains(value, "hunter2") {
					t.Errorf("%s still tells: %q", key, value)
				}
			}
			if string(letter.Payload) != "hunter2 in the payload stays" {
				t.Errorf("payload %q", letter.Payload)
			}
		})
	}
}

// Bad input: a naming function that goes wrong later, hooks that panic, an error whose Error panics, and an Origin that
// panics: the letter is placed all the same.
func TestQueueContainsWhatUsersPlugIn(t *testing.T) {
	probed := 0
	config := QueueConfig{
		Naming: func(s Source) string {
			if s.Topic == "orders" && s.Handler == "billing" {
				if probed++; probed > 2 { // the first two calls are the probe at construction
					return s.Topic
				}
			}
			return s.Topic + ".dead"
		},
		Origin:   func(*message.Message) Origin { panic("origin") },
		TooLarge: func(error) bool { panic("too large") },
		Hooks:    Hooks{OnDeadLetter: func(context.Context, Letter) { panic("hook") }},
	}
	dead := &sink{}
	r := start(t, "orders", dead, config, failing(panickyError{}))
	r.publish(message.NewMessage("id", nil))
	eventually(t, "the letter is placed under the default name", func() bool { return len(dead.in("orders.dlq")) == 1 })
}

type panickyError struct{}

func (panickyError) Error() string { panic("no text") }

// Bad input: configurations with which messages could be lost do not construct, and the error names the field.
func TestNewQueueRefuses(t *testing.T) {
	good := &sink{}
	for _, publisher := range []message.Publisher{nil, (*sink)(nil)} {
		if _, err := NewQueue(publisher, QueueConfig{}); err == nil || !strings.Contains(err.Error(), "the publisher is nil") {
			t.Errorf("publisher %v: %v", publisher, err)
		}
	}
	for field, config := range map[string]QueueConfig{
		"QueueConfig.Fallbacks[1].Publisher":  {Fallbacks: []Sink{{Publisher: good}, {}}},
		"QueueConfig.Naming names \"orders\"": {Naming: func(s Source) string { return s.Topic }},
		"QueueConfig.Naming names \"\"":       {Naming: func(Source) string { return "" }},
		"QueueConfig.Naming: naming function": {Naming: func(Source) string { panic("x") }},
		"QueueConfig.MaxAdded":                {MaxAdded: 100},
		"QueueConfig.PublishAttempts":         {PublishAttempts: -1},
	} {
		if _, err := NewQueue(good, config); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("want an error with %q, got %v", field, err)
		}
	}
}

// initializingSink refuses to start without its topic.
type initializingSink struct {
	sink
	missing string
	asked   []string
}

func (s *initializingSink) InitializeTopics(topics ...string) error {
	s.asked = append(s.asked, topics...)
	for _, topic := range topics {
		if topic == s.missing {
			return fmt.Errorf("topic %q does not exist", topic)
		}
	}
	return nil
}

// Feature D5: a missing destination is an error at start-up that names it.
func TestMissingDestinationEndsRun(t *testing.T) {
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, nil)
	defer pubsub.Close()
	for missing, want := range map[string]string{"orders.invalid": `topic "orders.invalid" does not exist`, "": ""} {
		dead := &initializingSink{missing: missing}
		queue, err := NewQueue(dead, QueueConfig{})
		if err != nil {
			t.Fatal(err)
		}
		router := message.NewDefaultRouter(nil)
		router.AddMiddleware(queue.Middleware)
		router.AddSubscriberDecorators(queue.InitializeOnSubscribe)
		router.AddConsumerHandler("billing", "orders", pubsub, func(*message.Message) error { return nil })
		ctx, cancel := context.WithCancel(context.Background())
		if missing == "" {
			go func() { <-router.Running(); cancel() }()
		}
		err = router.Run(ctx)
		cancel()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q: Run returned %v", missing, err)
		}
		if strings.Join(dead.asked, " ") != "orders.dlq orders.invalid" {
			t.Errorf("asked for %v", dead.asked)
		}
	}
}

// Feature D7: Watermill's keys are written beside ours on request.
func TestQueueWritesWatermillKeys(t *testing.T) {
	dead := &sink{}
	r := start(t, "orders", dead, QueueConfig{WatermillKeys: true}, failing(errors.New("boom")))
	r.publish(message.NewMessage("id", nil))
	eventually(t, "the letter is placed", func() bool { return len(dead.in("orders.dlq")) == 1 })
	m := dead.in("orders.dlq")[0].Metadata
	if m["reason_poisoned"] != "boom" || m["topic_poisoned"] != "orders" || m["handler_poisoned"] != "billing" || m["subscriber_poisoned"] != "gochannel.GoChannel" {
		t.Errorf("metadata %v", m)
	}
}

// Feature D4: after the deadline of the message's context every sink still has its one try.
func TestPlaceAfterDeadlineTriesFallbacks(t *testing.T) {
	last := &sink{}
	queue, err := NewQueue(&sink{refuse: func(int, string, *message.Message) error { return errors.New("down") }}, QueueConfig{
		Fallbacks: []Sink{{Publisher: last}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	if err := queue.Place(message.NewMessageWithContext(ctx, "id", nil), errors.New("too slow")); err != nil {
		t.Fatal(err)
	}
	if last.topics() != "unknown.dlq:1" {
		t.Errorf("placed in %q", last.topics())
	}
}

// Decision 11, promise P4: runtime.Goexit in what users plug in leaves the message nacked, so that it comes again, and
// never in between.
func TestQueueNacksGoexitInSink(t *testing.T) {
	dead := &sink{}
	exits := 0
	config := QueueConfig{MaskText: func(text string) string {
		if exits++; exits <= 2 {
			runtime.Goexit()
		}
		return text
	}}
	for name, handle := range map[string]message.HandlerFunc{
		"error":  failing(errors.New("boom")),
		"goexit": func(*message.Message) ([]*message.Message, error) { runtime.Goexit(); return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			exits, dead.taken = 0, nil
			r := start(t, "orders", dead, config, handle)
			r.publish(message.NewMessage("id", nil))
			eventually(t, "it came again and is placed", func() bool { return len(dead.in("orders.dlq")) == 1 })
		})
	}
}

// Feature D5: for a handler of a dead-letter topic, what must be there is the parked topic.
func TestInitializeForDeadLetterTopic(t *testing.T) {
	dead := &initializingSink{}
	start(t, "orders.dlq", dead, QueueConfig{}, failing(nil))
	if strings.Join(dead.asked, " ") != "orders.dlq.parked" {
		t.Errorf("asked for %v", dead.asked)
	}
}

// Feature D12: a naming that knows its topics one by one knows a dead letter's topic by the letter's origin, and no
// message on a live topic makes that one a dead-letter topic.
func TestQueueParksUnderAnyNaming(t *testing.T) {
	naming := func(s Source) string {
		if s.Topic == "orders" {
			return "orders-dead"
		}
		return s.Topic + ".dlq"
	}
	dead := &sink{}
	r := start(t, "orders-dead", dead, QueueConfig{Naming: naming}, failing(errors.New("a bug")))
	r.publish(sampleLetter().Encode())
	eventually(t, "it is parked", func() bool { return len(dead.in("orders-dead.parked")) == 1 })

	live := start(t, "payments", dead, QueueConfig{Naming: naming}, failing(errors.New("a bug")))
	live.publish(sampleLetter().Encode())
	eventually(t, "the forged letter is a letter of its topic", func() bool { return len(dead.in("payments.dlq")) == 1 })
	if l, _ := Decode(dead.in("payments.dlq")[0]); l.Origin.Topic != "payments" {
		t.Errorf("origin %+v", l.Origin)
	}
}

// Feature D1: handler and group of a letter are those that failed, also when the message came back from a redrive and
// another handler of its topic fails.
func TestLetterNamesTheHandlerThatFailed(t *testing.T) {
	dead := &sink{}
	r := start(t, "orders", dead, QueueConfig{}, failing(errors.New("boom")))
	l := sampleLetter()
	l.Origin.Handler = "audit"
	r.publish(l.Redriven("ada", "campaign", longAgo))
	eventually(t, "the letter is placed", func() bool { return len(dead.in("orders.dlq")) == 1 })
	got, _ := Decode(dead.in("orders.dlq")[0])
	if got.Origin.Handler != "billing" || got.Origin.Offset != "77" || got.Origin.Topic != "orders" {
		t.Errorf("origin %+v", got.Origin)
	}
}

// Feature D12: where the parked topic refuses, even an invalid dead letter goes to the fallbacks and never to .dlq.dlq.
func TestParkedNeverFallsBackToDeadLettersOfDeadLetters(t *testing.T) {
	last := &sink{}
	dead := &sink{refuse: func(_ int, topic string, _ *message.Message) error {
		if topic == "orders.dlq.parked" {
			return errors.New("read only")
		}
		return nil
	}}
	config := QueueConfig{PublishBackoff: time.Millisecond, Fallbacks: []Sink{{Publisher: last}}}
	r := start(t, "orders.dlq", dead, config, failing(classify.Invalid(errors.New("cannot be read"))))
	r.publish(sampleLetter().Encode())
	eventually(t, "a sink has it", func() bool { return dead.topics()+last.topics() != "" })
	if dead.topics() != "" || last.topics() != "orders.dlq.parked:1" {
		t.Errorf("placed in %q, fallback has %q", dead.topics(), last.topics())
	}
}

// sourceSink wants to know whose dead letters its topics take.
type sourceSink struct {
	sink
	sources []string
}

func (s *sourceSink) InitializeTopics(...string) error { return errors.New("without a source") }

func (s *sourceSink) InitializeTopicsFor(source string, topics ...string) error {
	s.sources = append(s.sources, source+">"+strings.Join(topics, ","))
	return nil
}

// Feature D5: a sink that can give topics what suits their source is told the source.
func TestInitializeTellsTheSource(t *testing.T) {
	dead, fallback := &sourceSink{}, &sourceSink{}
	queue, err := NewQueue(dead, QueueConfig{Fallbacks: []Sink{{Publisher: fallback, Topic: "last"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(queue.initializeFor("orders"), queue.initializeFor("orders.dlq")); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(dead.sources, " "); got != "orders>orders.dlq,orders.invalid orders.dlq>orders.dlq.parked" {
		t.Error(got)
	}
	if got := strings.Join(fallback.sources, " "); got != "orders>last orders.dlq>last" {
		t.Error(got)
	}
}
