package decorated_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// maker is a publisher that can make topics.
type maker struct {
	message.Publisher
	made []string
}

type initializer interface{ InitializeTopics(...string) error }

func (m *maker) InitializeTopics(topics ...string) error {
	m.made = append(m.made, topics...)
	return nil
}

type (
	embeds  struct{ message.Publisher }
	exports struct{ Inside message.Publisher }
	unwraps struct {
		message.Publisher
		inside message.Publisher
	}
	keeps struct{ *maker } // promotes the method
	loops struct{ Self *message.Publisher }
)

func (e exports) Publish(topic string, messages ...*message.Message) error {
	return e.Inside.Publish(topic, messages...)
}
func (e exports) Close() error                             { return e.Inside.Close() }
func (u unwraps) Unwrap() message.Publisher                { return u.inside }
func (l *loops) Publish(string, ...*message.Message) error { return nil }
func (l *loops) Close() error                              { return nil }
func (l *loops) Unwrap() message.Publisher                 { return l }

func transformed(t *testing.T, pub message.Publisher) message.Publisher {
	return testkit.Must(message.MessageTransformPublisherDecorator(func(*message.Message) {})(pub))
}

// metered is as Watermill's metrics decorator, a value that has the publisher in an unexported field.
type metered struct{ pub message.Publisher }

func (m metered) Publish(topic string, messages ...*message.Message) error {
	return m.pub.Publish(topic, messages...)
}
func (m metered) Close() error { return m.pub.Close() }

// Feature D5: what a publisher can do is found through decorators that show it, and known of those that hide it.
func TestLayers(t *testing.T) {
	m := &maker{Publisher: gochannel.NewGoChannel(gochannel.Config{}, nil)}
	for name, c := range map[string]struct {
		pub   message.Publisher
		found bool
		hides bool
	}{
		"bare":                    {m, true, false},
		"embedded":                {embeds{m}, true, false},
		"exported":                {exports{m}, true, false},
		"promoted":                {keeps{m}, true, false},
		"unwrapped":               {unwraps{m.Publisher, m}, true, false},
		"Watermill's transform":   {transformed(t, m), true, false},
		"many":                    {embeds{exports{transformed(t, embeds{m})}}, true, false},
		"Watermill's metrics":     {metered{pub: m}, false, true},
		"metrics in a decorator":  {embeds{metered{pub: embeds{m}}}, false, true},
		"metrics of one that not": {metered{pub: m.Publisher}, false, false},
		"none":                    {m.Publisher, false, false},
		"nil":                     {nil, false, false},
		"nil pointer":             {(*maker)(nil), false, false},
		"decorates nothing":       {embeds{}, false, false},
		"unwraps to itself":       {&loops{}, false, false},
	} {
		found, ok := decorated.As[initializer](c.pub)
		testkit.Check(t, ok == c.found && (!ok || found.InitializeTopics("t") == nil), "%s: found %t", name, ok)
		if hidden := decorated.Hides[initializer](c.pub); (hidden != nil) != c.hides {
			t.Errorf("%s: hides %v", name, hidden)
		}
	}
	testkit.Check(t, len(m.made) == 7, "asked %d times", len(m.made))
}

// keepsOpen has a Close of its own, and saysSo says that it leaves what is inside open.
type (
	keepsOpen struct{ message.Publisher }
	saysSo    struct{ keepsOpen }
	points    struct{ *gochannel.GoChannel }
	holds     struct{ points }
)

func (keepsOpen) Close() error           { return nil }
func (saysSo) Unwrap() message.Publisher { return nil }

// Feature D4: one publisher is known behind each decorator, unless the decorator says that it leaves it open.
func TestClosedTogether(t *testing.T) {
	ps := gochannel.NewGoChannel(gochannel.Config{}, nil)
	for name, c := range map[string]struct {
		pub  message.Publisher
		with bool
	}{
		"itself":      {ps, true},
		"transformed": {transformed(t, ps), true},
		"metered":     {metered{pub: transformed(t, ps)}, true},
		"embedded":    {struct{ message.Publisher }{ps}, true},
		"named":       {embeds{transformed(t, embeds{ps})}, true},
		"pointer":     {&maker{Publisher: ps}, true},
		"points":      {points{ps}, true},
		"holds":       {&holds{points{ps}}, true},
		"keeps open":  {keepsOpen{ps}, true},
		"says so":     {saysSo{keepsOpen{ps}}, false},
		"another":     {gochannel.NewGoChannel(gochannel.Config{}, nil), false},
		"nil":         {nil, false},
	} {
		if with := decorated.ClosedTogether(c.pub, ps); with != c.with {
			t.Errorf("%s: %t", name, with)
		}
		if with := decorated.ClosedTogether(metered{pub: ps}, c.pub); with != c.with {
			t.Errorf("%s, metered: %t", name, with)
		}
	}
	if !decorated.ClosedTogether(exports{ps}, exports{ps}) || decorated.ClosedTogether(embeds{}, embeds{nil}) != decorated.ClosedTogether(embeds{nil}, embeds{}) {
		t.Error("values are compared")
	}
}
