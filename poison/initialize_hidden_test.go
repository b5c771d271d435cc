package poison_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/deadletter"
	"github.com/watermill-spillway/spillway/internal/destination"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
)

// metered is as Watermill's metrics decorator, which has the publisher in an unexported field.
type metered struct{ pub message.Publisher }

func (m metered) Publish(topic string, messages ...*message.Message) error {
	return m.pub.Publish(topic, messages...)
}
func (m metered) Close() error { return m.pub.Close() }

// makes is a publisher that makes topics.
type makes struct {
	message.Publisher
	made []string
}

func (m *makes) InitializeTopicsFor(source string, topics ...string) error {
	m.made = append(append(m.made, source+":"), topics...)
	return nil
}

func (m *makes) InitializeTopics(...string) error { return errors.New("without a source") }

// Feature D5: a publisher's topics are made through decorators; one that hides it is refused at construction, before
// the first letter finds out, and goes with WithInitializer.
func TestInitializerInsideOfADecorator(t *testing.T) {
	m := &makes{Publisher: gochannel.NewGoChannel(gochannel.Config{}, nil)}
	transformed := testkit.Must(message.MessageTransformPublisherDecorator(func(*message.Message) {})(m))
	for name, c := range map[string]struct {
		pub  message.Publisher
		made int
		err  string
	}{
		"Watermill's transform":      {transformed, 5, ""},
		"metrics":                    {metered{m}, 0, "hides the *poison_test.makes inside"},
		"metrics in a transform":     {struct{ message.Publisher }{metered{transformed}}, 0, "poison.WithInitializer"},
		"metrics, with":              {poison.WithInitializer(metered{m}, m), 5, ""},
		"metrics, with, decorated":   {struct{ message.Publisher }{poison.WithInitializer(metered{m}, m)}, 5, ""},
		"metrics, topics exist":      {poison.WithInitializer(metered{m}, poison.TopicsExist), 0, ""},
		"metrics of one that cannot": {metered{m.Publisher}, 0, ""},
		"with nil":                   {poison.WithInitializer(metered{m}, nil), 0, "the initializer is nil"},
		"nil with":                   {poison.WithInitializer(nil, m), 0, "the publisher is nil"},
	} {
		m.made = nil
		queue, err := poison.NewQueue(c.pub, poison.QueueConfig{})
		if err == nil {
			_, fallback := poison.NewQueue(m, poison.QueueConfig{Fallbacks: []poison.Sink{{Publisher: c.pub}}})
			err = errors.Join(fallback, queue.Inside().Initialize("orders", ""), destination.Initialize(c.pub, "orders", "orders.other"))
		} else if again := destination.Initialize(c.pub, "orders", "x"); again == nil {
			t.Errorf("%s: NewQueue says %v, InitializeFor nothing", name, err)
		}
		testkit.Check(t, (err != nil) == (c.err != "") && (err == nil || strings.Contains(err.Error(), c.err)) &&
			len(m.made) == c.made, "%s: made %q, %v", name, m.made, err)
		const told = "orders: orders.dlq orders.invalid orders: orders.other"
		testkit.Check(t, c.made == 0 || strings.Join(m.made, " ") == told, "%s: made %q", name, m.made)
	}
}

// Conventions: nil arguments are errors, or tell nothing, and never a panic.
func TestNilArguments(t *testing.T) {
	ps := gochannel.NewGoChannel(gochannel.Config{}, nil)
	queue := testkit.Must(poison.NewQueue(ps, poison.QueueConfig{}))
	boom := errors.New("boom")
	err := queue.Place(nil, boom)
	testkit.Check(t, errors.Is(err, boom) && strings.Contains(err.Error(), "nil"), "Place without a message: %v", err)
	testkit.Check(t, queue.Place(message.NewMessage("m", nil), nil) != nil, "Place without an error")
	testkit.Check(t, testkit.Err(queue.InitializeOnSubscribe(nil)) != nil, "InitializeOnSubscribe")
	testkit.Check(t, destination.Initialize(nil, "orders", "orders.dlq") != nil, "InitializeFor")
	_, err = poison.Decode(nil)
	testkit.Check(t, errors.Is(err, poison.ErrNotLetter), "Decode %v", err)
	testkit.Check(t, !poison.Inside().IsLetter(nil) && poison.Read(nil).Original == nil &&
		poison.Inside().StageOf(nil) == (deadletter.Stage{}), "nothing tells something")
	testkit.Check(t, queue.Inside().CheckPublisher(nil) == nil && queue.Inside().CheckPublisher(ps) != nil,
		"CheckPublisher")
	testkit.Check(t, (poison.Letter{}).Encode() != nil, "Encode")
}
