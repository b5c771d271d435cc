package poison

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/settings"
)

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
		"reject":    {classify.Permanent(errors.New("customer 7 was deleted"), classify.Reason("no_such_customer")), "orders.dlq", "no_such_customer"},
	} {
		t.Run(name, func(t *testing.T) {
			dead := &sink{}
			r := start(t, "orders", dead, QueueConfig{Node: "n"}, failing(test.err))
			r.publish(message.NewMessage("id-1", []byte("payload")))
			eventually(t, "the letter is placed", func() bool { return len(dead.in(test.topic)) == 1 })
			l := testkit.Must(Decode(dead.in(test.topic)[0]))
			if l.Failure.Reason != test.reason || l.Origin.Topic != "orders" || l.Origin.Handler != "billing" ||
				l.Origin.MessageID != "id-1" || l.Failure.Attempts != 1 || l.Failure.LastFailedAt.IsZero() || l.Failure.Node != "n" {
				t.Errorf("letter %+v", l)
			}
			testkit.Check(t, string(l.Original.Payload) == "payload", "payload %q", l.Original.Payload)
			testkit.Equal(t, "outputs of a failed handler were published", r.outs.topics(), "")
		})
	}
}

// Feature D2: a discarded message is acked and counted, and placed nowhere.
func TestQueueDiscards(t *testing.T) {
	dead, discarded := &sink{}, make(chan Letter, 10)
	r := start(t, "orders", dead, QueueConfig{Hooks: Hooks{OnDiscard: func(_ context.Context, l Letter) { discarded <- l }}},
		failing(classify.Discard(errors.New("too old to matter"))))
	r.publish(message.NewMessage("id-1", nil))
	l := <-discarded
	testkit.Check(t, l.Original.UUID == "id-1" && l.Failure.Class == classify.ClassDiscard, "discarded %+v", l)
	testkit.Check(t, dead.topics() == "", "placed in %s", dead.topics())
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
		testkit.Check(t, strings.Contains(said[i], want[i]), "refusal %d is %q, want %s", i, said[i], want[i])
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
	testkit.Check(t, len(sizes) == 3 && sizes[0] == sizes[1] && sizes[2] < sizes[1], "sizes tried: %v", sizes)
	l, _ := Decode(dead.in("orders.dlq")[0])
	if !strings.HasPrefix(l.Failure.Description, "long ") || !strings.Contains(l.Failure.Description, "cut, ") || string(l.Original.Payload) != "payload" {
		t.Errorf("description %q", l.Failure.Description)
	}
}

// Bad input: configurations with which messages could be lost do not construct, and the error names the field.
func TestNewQueueRefuses(t *testing.T) {
	good := &sink{}
	for _, publisher := range []message.Publisher{nil, (*sink)(nil)} {
		if _, err := NewQueue(publisher, QueueConfig{}); err == nil || !strings.Contains(err.Error(), "the publisher is nil") {
			t.Errorf("publisher %v: %v", publisher, err)
		}
	}
	for field, config := range map[string]QueueConfig{
		"QueueConfig.Fallbacks[1].Publisher":                           {Fallbacks: []Sink{{Publisher: good}, {}}},
		"QueueConfig.Naming: naming: Scheme.DeadLetter is \"{topic}\"": {Shared: settings.Shared{Naming: naming.Scheme{DeadLetter: "{topic}"}}},
		"QueueConfig.PublishAttempts":                                  {PublishAttempts: -1},
	} {
		if _, err := NewQueue(good, config); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("want an error with %q, got %v", field, err)
		}
	}
}

// Feature D5: a missing destination is an error at start-up that names it.
func TestMissingDestinationEndsRun(t *testing.T) {
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, nil)
	defer pubsub.Close()
	for missing, want := range map[string]string{"orders.invalid": `topic "orders.invalid" does not exist`, "": ""} {
		dead := &initializingSink{missing: missing}
		queue := newQueue(t, dead, QueueConfig{})
		router := message.NewDefaultRouter(nil)
		router.AddMiddleware(queue.Middleware)
		router.AddSubscriberDecorators(queue.InitializeOnSubscribe)
		router.AddConsumerHandler("billing", "orders", pubsub, func(*message.Message) error { return nil })
		ctx, cancel := context.WithCancel(context.Background())
		if missing == "" {
			go func() { <-router.Running(); cancel() }()
		}
		err := router.Run(ctx)
		cancel()
		testkit.Check(t, (err == nil) == (want == "") && (err == nil || strings.Contains(err.Error(), want)),
			"missing %q: Run returned %v", missing, err)
		testkit.Check(t, strings.Join(dead.asked, " ") == "orders.dlq orders.invalid", "asked for %v", dead.asked)
	}
}

// Feature D5: a sink that can give topics what suits their source is told the source.
func TestInitializeTellsTheSource(t *testing.T) {
	dead, fallback := &sourceSink{}, &sourceSink{}
	queue := newQueue(t, dead, QueueConfig{Fallbacks: []Sink{{Publisher: fallback, Topic: "last"}}})
	testkit.NoError(t, errors.Join(queue.initializeFor("orders"), queue.initializeFor("orders.dlq")))
	got := strings.Join(dead.sources, " ")
	testkit.Check(t, got == "orders>orders.dlq,orders.invalid orders.dlq>orders.dlq.parked", "%v", got)
	testkit.Equal(t, "", strings.Join(fallback.sources, " "), "orders>last orders.dlq>last")
}
