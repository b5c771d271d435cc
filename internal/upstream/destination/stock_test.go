package destination

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// looking makes its topics before the first message, as the publisher of NATS does with AutoProvision.
type looking struct {
	config struct {
		JetStream struct{ AutoProvision, Disabled bool }
	}
	made      []string
	published int
}

func (p *looking) Publish(topic string, messages ...*message.Message) error {
	if strings.Contains(topic, ".") {
		return errors.New("nats: invalid stream name")
	}
	p.made = append(p.made, topic)
	p.published += len(messages)
	return nil
}
func (p *looking) Close() error { return nil }

type unsure struct{ message.Publisher }

func (u unsure) Publish(topic string, messages ...*message.Message) error {
	return errors.New(messages[0].UUID) // panics without messages
}

type hidden struct{ pub message.Publisher }

func (h hidden) Publish(topic string, messages ...*message.Message) error {
	return h.pub.Publish(topic, messages...)
}
func (h hidden) Close() error { return nil }

// Looking is exported, so that a field of it is.
type Looking = looking

type embedded struct{ *Looking }

type makes struct{ message.Publisher }

func (makes) InitializeTopics(...string) error { return nil }

// stockForTest makes looking known, with the settings of the publisher of NATS.
func stockForTest(t *testing.T) {
	publisherOf = func(v reflect.Value) *Publisher {
		p, ok := own(v)
		if !ok {
			return PublisherOf(v)
		}
		config := p.config.JetStream
		return &Publisher{Looks: config.AutoProvision && !config.Disabled}
	}
	t.Cleanup(func() { publisherOf = PublisherOf })
}

func own(v reflect.Value) (p *looking, ok bool) {
	if v.Type() != reflect.TypeFor[looking]() {
		return nil, false
	}
	return (*looking)(v.Addr().UnsafePointer()), true
}

// Feature D5: a publisher that looks for its topic before the first message does so at start-up, without a message. One
// that cannot be asked is in the log, once; one that makes topics, or whose topics come into being, is not.
func TestProbe(t *testing.T) {
	stockForTest(t)
	auto := func() *looking {
		p := &looking{}
		p.config.JetStream.AutoProvision = true
		return p
	}
	core := auto()
	core.config.JetStream.Disabled = true
	memory := gochannel.NewGoChannel(gochannel.Config{}, nil)
	defer memory.Close()
	for name, row := range map[string]struct {
		pub    message.Publisher
		notice bool
	}{
		"looks":                   {pub: auto()},
		"decorated":               {pub: unsure{auto()}},
		"embedded by its pointer": {pub: embedded{auto()}},
		"hidden":                  {pub: hidden{auto()}, notice: true},
		"core NATS":               {pub: core, notice: true},
		"unknown":                 {pub: unsure{}, notice: true},
		"in memory":               {pub: memory},
		"makes":                   {pub: makes{unsure{}}},
	} {
		var own *looking
		visit(row.pub, func(_ *Publisher, inside message.Publisher) bool {
			own, _ = inside.(*looking)
			return own == nil
		})
		looks := own != nil && !row.notice
		if err := Initialize(row.pub, "orders", "orders-dlq", "orders-invalid"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if looks && (!slices.Equal(own.made, []string{"orders-dlq", "orders-invalid"}) || own.published > 0) || !looks && own != nil && own.made != nil {
			t.Errorf("%s: made %v, published %d", name, own.made, own.published)
		}
		err := Initialize(row.pub, "orders", "orders.dlq")
		testkit.Check(t, (err != nil) == looks && (!looks ||
			strings.Contains(err.Error(), `topic "orders.dlq": nats: invalid stream name`)), "%s: %v", name, err)
		log := watermill.NewCaptureLogger()
		var notice Notice
		for range 2 {
			notice.Log(log, row.pub, "dead letters", "orders-dlq")
		}
		lines := log.Captured()[watermill.InfoLogLevel]
		testkit.Check(t, (len(lines) == 1) == row.notice && len(lines) <= 1, "%s: log %v", name, lines)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type knows struct{ unsure }

func (knows) Deduplicates() bool { return false }

// Promise P1, decision 28: a publisher that does not show whether its broker keeps each message is refused, unless one
// around it knows better.
func TestUnknownSettings(t *testing.T) {
	publisherOf = func(reflect.Value) *Publisher { return &Publisher{Unknown: "config.Tracks"} }
	t.Cleanup(func() { publisherOf = PublisherOf })
	err := CheckKeeps(unsure{})
	testkit.Check(t, err != nil && strings.Contains(err.Error(), "config.Tracks is not as Spillway knows it") &&
		strings.Contains(err.Error(), "upgrade Spillway"), "%v", err)
	testkit.NoError(t, CheckKeeps(knows{}))
}
