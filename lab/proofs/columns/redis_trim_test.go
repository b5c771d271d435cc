package columns_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// Feature D16: a publisher that trims a stream drops letters and waiting messages without an error. The router does not
// start with one for dead letters, fallbacks or stages, however it is decorated. It runs before the parallel tests,
// which restart the server.
func TestRedisTrimsRefused(t *testing.T) {
	b := redisBroker(services.Redis(t))
	const topic = "trimmed"
	trimming := func(config redisstream.PublisherConfig) message.Publisher {
		options := b.options()
		config.Client = redis.NewClient(&options)
		pub := testkit.Must(redisstream.NewPublisher(config, nil))
		t.Cleanup(func() { _ = pub.Close() })
		return pub
	}
	whole, all := trimming(redisstream.PublisherConfig{}), trimming(redisstream.PublisherConfig{DefaultMaxlen: 1000})
	transformed := testkit.Must(message.MessageTransformPublisherDecorator(func(*message.Message) {})(all))
	for name, c := range map[string]struct {
		dead   message.Publisher
		change func(*spillway.Config)
		want   string // in the error
	}{
		"nothing":             {dead: whole},
		"all streams":         {dead: all, want: `trims "trimmed.dlq" to 1000`},
		"this stream":         {dead: trimming(redisstream.PublisherConfig{Maxlens: map[string]int64{topic + ".invalid": 5}}), want: `trims "trimmed.invalid" to 5`},
		"another stream":      {dead: trimming(redisstream.PublisherConfig{Maxlens: map[string]int64{topic: 5}})},
		"all but ours":        {dead: trimming(redisstream.PublisherConfig{DefaultMaxlen: 9, Maxlens: map[string]int64{topic + ".dlq": 0, topic + ".invalid": 0}})},
		"decorated":           {dead: transformed, want: "Maxlens"},
		"embedded by pointer": {dead: struct{ *redisstream.Publisher }{all.(*redisstream.Publisher)}, want: "Maxlens"},
		"topics exist":        {dead: poison.WithInitializer(all, poison.TopicsExist), want: "Maxlens"},
		"a fallback": {dead: whole, want: `trims "lost" to 1000`, change: func(c *spillway.Config) {
			c.Queue.Fallbacks = []poison.Sink{{Publisher: all, Topic: "lost"}}
		}},
		"a stage": {dead: whole, want: ".retry.", change: func(c *spillway.Config) {
			c.Stages = &stages.Config{Stages: []stages.Stage{{Delay: time.Second}}, Publisher: all, Subscriber: func(_, group string) (message.Subscriber, error) {
				return b.subscriber(t, group, redisIdle, b.options()), nil
			}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			config := spillway.Config{Publisher: c.dead}
			if c.change != nil {
				c.change(&config)
			}
			if err := b.starts(t, config, topic); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("the router ended with %v; want %q", err, c.want)
			}
		})
	}
}

// Feature V1, promise P1: letters do not go back through a publisher that trims the live stream: what it drops was
// redriven, by the report.
func TestRedisTrimsRefusedForRedrives(t *testing.T) {
	options := redis.Options{Addr: "127.0.0.1:1"} // the publisher is not used
	client := redis.NewClient(&options)
	defer client.Close()
	for allowed, want := range map[string]string{"orders": `trims "orders" to 5`, "audit": ""} {
		pub, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client, Maxlens: map[string]int64{"orders": 5}}, nil)
		testkit.NoError(t, err)
		_, err = redrive.NewHandler(pub, redrive.HandlerConfig{Rules: redrive.Rules{Allow: []string{allowed}}, Park: pub})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want %q", allowed, err, want)
		}
	}
}

// starts returns the error with which a router with one handler does not start.
func (b redisBroker) starts(t *testing.T, config spillway.Config, topic string) error {
	t.Helper()
	b.createTopic(t, topic)
	ch, err := spillway.New(t.Context(), config)
	if err != nil {
		return err
	}
	router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	ch.Attach(router)
	sub := b.subscriber(t, "trimming", redisIdle, b.options())
	defer func() { _ = sub.Close() }()
	handle := func(*message.Message) ([]*message.Message, error) { return nil, nil }
	if config.Stages == nil {
		router.AddHandler("billing", topic, sub, topic+".out", b.publisher(t, b.options()), handle)
	} else if _, err := ch.Stages().AddHandler(router, "billing", topic, sub, topic+".out", b.publisher(t, b.options()), handle); err != nil {
		t.Fatal(err)
	}
	return testkit.Starts(t, router)
}
