package footprint_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/leaks"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/lab/internal/footprint"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// setup is one way to configure the stages of a service on a broker.
type setup struct {
	addresses  []string
	publisher  func(t testing.TB, live bool) message.Publisher
	subscriber func(testing.TB, string) message.Subscriber
	stages     func(testing.TB, *stages.Config) // nil: without stages
	still      int                              // tenths of a second in which nothing changes
}

// run starts a service whose handlers' messages pass through all stages but the last, where they wait.
func run(t *testing.T, s setup, handlers int) footprint.Count {
	t.Helper()
	prefix := "footprint-" + rand.Text()
	dead, live := s.publisher(t, false), s.publisher(t, true)
	config := spillway.Config{Publisher: dead, Logger: watermill.NopLogger{}}
	var waiting atomic.Int64
	if s.stages != nil {
		config.Stages = &stages.Config{Stages: stages.Delays(20*time.Millisecond, 40*time.Millisecond, time.Hour)}
		s.stages(t, config.Stages)
		config.Stages.Hooks.OnStage = func(_ context.Context, w stages.Waiting) {
			if w.Stage == 3 {
				waiting.Add(1)
			}
		}
	}
	channel := testkit.Must(spillway.New(t.Context(), config))
	var handled atomic.Int64
	handle := func(msg *message.Message) error {
		handled.Add(1)
		if s.stages == nil {
			return nil
		}
		return errors.New("not now")
	}
	var topics []string
	for i := range handlers {
		topic := fmt.Sprintf("%s-%d", prefix, i)
		topics = append(topics, topic)
		if init, ok := live.(interface{ InitializeTopics(...string) error }); ok {
			testkit.NoError(t, init.InitializeTopics(topic))
		}
	}
	stop := testkit.RunRouter(t, watermill.NopLogger{}, func(router *message.Router) {
		channel.Attach(router)
		for i, topic := range topics {
			name, sub := fmt.Sprintf("handler-%d", i), s.subscriber(t, prefix+fmt.Sprint(i))
			if s.stages == nil {
				router.AddConsumerHandler(name, topic, sub, handle)
			} else if _, err := channel.Stages().AddConsumerHandler(router, name, topic, sub, handle); err != nil {
				t.Fatal(err)
			}
		}
	})
	for _, topic := range topics {
		testkit.NoError(t, live.Publish(topic, message.NewMessage(rand.Text(), []byte("x"))))
	}
	testkit.Eventually(t, "all are handled, and wait in the last stage", func() bool {
		if s.stages == nil {
			return handled.Load() >= int64(handlers)
		}
		return waiting.Load() >= int64(handlers)
	})
	count := s.settled(t)
	stop()
	publishers := []message.Publisher{dead, live}
	if s.stages != nil {
		publishers = append(publishers, config.Stages.Publisher)
	}
	for _, p := range publishers {
		testkit.NoError(t, p.Close())
	}
	return count
}

// settled counts when nothing changes any more: what was started for the way there ends by itself.
func (s setup) settled(t *testing.T) (count footprint.Count) {
	t.Helper()
	same := 0
	testkit.Eventually(t, "nothing is opened or closed for a while", func() bool {
		time.Sleep(100 * time.Millisecond)
		now := testkit.Must(footprint.Take(s.addresses...))
		if same++; now.Sockets != count.Sockets || now.Total() != count.Total() {
			same = 0
		}
		count = now
		return same >= s.still
	})
	return count
}

// without is what a service has without stages.
func without(t *testing.T, s setup, handlers int) footprint.Count {
	t.Helper()
	s.stages = nil
	return run(t, s, handlers)
}

// beyond is what stages add to that.
func beyond(t *testing.T, s setup, handlers int, before footprint.Count) footprint.Count {
	t.Helper()
	more := run(t, s, handlers).Minus(before)
	t.Logf("%d handler(s) with three stages have beyond those without:\n%s", handlers, more)
	return more
}

func kafka(t *testing.T) setup {
	brokers := services.Kafka(t)
	return setup{
		addresses: brokers, still: 8,
		publisher: func(t testing.TB, live bool) message.Publisher {
			config := wmkafka.PublisherConfig{}
			if live { // its topics need room for a letter's metadata in the others
				config.Sarama = func(config *sarama.Config) { config.Producer.MaxMessageBytes = 1 << 20 }
			}
			return testkit.Must(wmkafka.NewPublisher(brokers, config))
		},
		subscriber: func(t testing.TB, group string) message.Subscriber {
			return testkit.Must(wmkafka.NewSubscriber(brokers, group, wmkafka.SubscriberConfig{}))
		},
	}
}

func rabbit(t *testing.T) setup {
	uri := services.AMQP(t)
	parsed := testkit.Must(url.Parse(uri))
	return setup{
		addresses: []string{parsed.Host}, still: 8,
		publisher: func(t testing.TB, _ bool) message.Publisher {
			return testkit.Must(wmamqp.NewPublisher(uri, wmamqp.PublisherConfig{}))
		},
		subscriber: func(t testing.TB, group string) message.Subscriber {
			return testkit.Must(wmamqp.NewSubscriber(uri, wmamqp.SubscriberConfig{}))
		},
	}
}

// whole makes the counts those of docs/measured.md, and runs what holds nothing: "make footprint".
var whole = os.Getenv("SPILLWAY_FOOTPRINT") != ""

// handlersToCount is ten for the figures. Two show the same in less time.
func handlersToCount() int {
	if whole {
		return 10
	}
	return 2
}

// Feature R5: stages of one broker have four sockets at most. Goroutines: 12, one a handler, seven of sarama's for each
// partition, and twenty of slack.
func TestKafka(t *testing.T) {
	s, n := kafka(t), handlersToCount()
	before := without(t, s, n)
	s.stages = shared
	used := beyond(t, s, n, before)
	testkit.Check(t, used.Sockets <= 4 && used.Total() <= 32+n+(2+7)*3*n, "while the publisher is in use:\n%s", used)
}

func shared(t testing.TB, config *stages.Config) {
	waiting, subscriber, err := wmkafka.NewStages(services.Kafka(t), "footprint-"+rand.Text(), wmkafka.SubscriberConfig{},
		wmkafka.PublisherConfig{})
	testkit.NoError(t, err)
	config.Publisher, config.Subscriber = waiting, subscriber
}

// Feature R5: on RabbitMQ, one connection consumes all stages of a service, and one publishes to them.
func TestRabbitMQ(t *testing.T) {
	s := rabbit(t)
	s.stages = func(t testing.TB, config *stages.Config) {
		uri := services.AMQP(t)
		pub := testkit.Must(wmamqp.NewPublisher(uri, wmamqp.PublisherConfig{}))
		sub := testkit.Must(wmamqp.NewSubscriber(uri, wmamqp.SubscriberConfig{}))
		config.Publisher, config.Subscriber = pub, func(string, string) (message.Subscriber, error) { return sub, nil }
	}
	n := handlersToCount()
	more := beyond(t, s, n, without(t, s, n))
	testkit.Check(t, more.Sockets <= 2, "%s", more)
}
