package jetstream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// A site is a topic of its own on the server.
type site struct {
	*testing.T
	js     nats.JetStreamContext
	topic  string
	config Config
}

func newSite(t *testing.T) *site {
	t.Helper()
	url := services.NATS(t)
	conn := testkit.Must(nats.Connect(url))
	t.Cleanup(conn.Close)
	js := testkit.Must(conn.JetStream())
	s := &site{T: t, js: js, topic: "streams-" + strings.ToLower(rand.Text()[:10]) + ".topic"}
	s.config = Config{URL: url, Group: "group", AckWait: time.Minute}
	t.Cleanup(func() { _ = js.DeleteStream(Name(s.topic)) })
	return s
}

func (s *site) create() {
	s.Helper()
	testkit.NoError(s, Create(s.js, s.topic))
}

func (s *site) send(ids ...string) {
	s.Helper()
	pub := testkit.Must(NewPublisher(s.config, nil))
	var err error
	for _, id := range ids {
		err = errors.Join(err, pub.Publish(s.topic, message.NewMessage(id, []byte(id))))
	}
	testkit.NoError(s, errors.Join(err, pub.Close()))
}

// received are the ids that a subscriber acked, and how often.
type received struct {
	mu  sync.Mutex
	ids map[string]int
}

func (r *received) count(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ids[id]
}

func (r *received) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprint(slices.Sorted(maps.Keys(r.ids)))
}

// subscribe acks everything until Close.
func (s *site) subscribe() (*Subscriber, *received) {
	s.Helper()
	sub, messages := s.open()
	got := &received{ids: map[string]int{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for msg := range messages {
			got.mu.Lock()
			got.ids[msg.UUID]++
			got.mu.Unlock()
			msg.Ack()
		}
	}()
	s.Cleanup(func() {
		_ = sub.Close()
		<-done
	})
	return sub, got
}

func (s *site) open() (*Subscriber, <-chan *message.Message) {
	s.Helper()
	sub := testkit.Must(NewSubscriber(s.config, nil))
	s.Cleanup(func() { _ = sub.Close() })
	messages := testkit.Must(sub.Subscribe(context.Background(), s.topic))
	return sub, messages
}

func (s *site) untilAll(got *received, ids ...string) {
	s.Helper()
	testkit.Eventually(s, fmt.Sprintf("%q came", ids), func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return got.count(id) == 0 })
	}, got.String)
}

// Promise P1: a stream that confirms letters and drops them is refused before the first letter.
func TestStreamsThatLose(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*nats.StreamConfig)
		says   string
	}{
		"age":             {func(c *nats.StreamConfig) { c.MaxAge = time.Hour }, "max_age"},
		"messages":        {func(c *nats.StreamConfig) { c.MaxMsgs = 10 }, "max_msgs 10"},
		"bytes":           {func(c *nats.StreamConfig) { c.MaxBytes = 1 << 20 }, "max_bytes"},
		"per subject":     {func(c *nats.StreamConfig) { c.MaxMsgsPerSubject = 10 }, "max_msgs_per_subject 10"},
		"interest":        {func(c *nats.StreamConfig) { c.Retention = nats.InterestPolicy }, "retention interest"},
		"memory":          {func(c *nats.StreamConfig) { c.Storage = nats.MemoryStorage }, "storage memory"},
		"no confirmation": {func(c *nats.StreamConfig) { c.NoAck = true }, "no_ack"},
		"other subject":   {func(c *nats.StreamConfig) { c.Subjects = []string{c.Subjects[0] + ".other"} }, "subjects"},
		"refuses":         {func(c *nats.StreamConfig) { c.MaxMsgs, c.Discard = 10, nats.DiscardNew }, ""},
		"work queue":      {func(c *nats.StreamConfig) { c.Retention = nats.WorkQueuePolicy }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			config := nats.StreamConfig{Name: Name(s.topic), Subjects: []string{s.topic}}
			c.change(&config)
			testkit.Must(s.js.AddStream(&config))
			pub := testkit.Must(NewPublisher(s.config, nil))
			defer func() { _ = pub.Close() }()
			switch err := pub.InitializeTopics(s.topic); {
			case c.says == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), s.topic)):
				t.Errorf("the error is %v, and should say %q", err, c.says)
			}
		})
	}
}

// Promise P1: a consumer is deleted under its subscriber. It is made again, begins with the oldest message, and loses
// none.
func TestConsumerDeletedUnderWay(t *testing.T) {
	s := newSite(t)
	s.create()
	_, got := s.subscribe()
	s.send("a", "b")
	s.untilAll(got, "a", "b")
	testkit.NoError(t, s.js.DeleteConsumer(Name(s.topic), "group"))
	s.send("c")
	s.untilAll(got, "c")
}

// Promise P1: the stream is deleted and made again under its subscriber, which gets what is published then.
func TestStreamDeletedUnderWay(t *testing.T) {
	s := newSite(t)
	s.create()
	_, got := s.subscribe()
	s.send("a")
	s.untilAll(got, "a")
	testkit.NoError(t, s.js.DeleteStream(Name(s.topic)))
	s.create()
	s.send("b")
	s.untilAll(got, "b")
}

// Promise P1: a handler that does not settle its message holds up Close for a second, and another subscriber gets the
// message.
func TestCloseTakesFromHand(t *testing.T) {
	s := newSite(t)
	s.create()
	sub, messages := s.open()
	s.send("in hand")
	inHand := <-messages
	begun := time.Now()
	testkit.NoError(t, sub.Close())
	_, got := s.subscribe()
	s.untilAll(got, "in hand")
	if took := time.Since(begun); took > s.config.AckWait/2 {
		t.Errorf("what was in hand came after %s", took)
	}
	testkit.Check(t, !inHand.Ack(), "what was given back can still be acked")
}

// A second deployment with another AckWait or MaxAckPending changes the consumer.
func TestChangedConfiguration(t *testing.T) {
	s := newSite(t)
	s.create()
	s.subscribe()
	s.config.AckWait, s.config.MaxAckPending = 2*time.Minute, 50
	s.subscribe()
	info := testkit.Must(s.js.ConsumerInfo(Name(s.topic), "group"))
	if info.Config.AckWait != 2*time.Minute || info.Config.MaxAckPending != 50 || info.Config.MaxDeliver != -1 {
		t.Errorf("%+v", info.Config)
	}
}

// What cannot work is an error before anything is subscribed to.
func TestRefuses(t *testing.T) {
	if _, err := NewSubscriber(Config{URL: "nats://127.0.0.1:1"}, nil); err == nil || !strings.Contains(err.Error(), "Group") {
		t.Errorf("without a group: %v", err)
	}
	for _, err := range []error{
		second(NewSubscriber(Config{URL: "nats://127.0.0.1:1", Group: "g"}, nil)), second(NewPublisher(Config{URL: "nats://127.0.0.1:1"}, nil)),
	} {
		testkit.Check(t, err != nil, "connected to nothing")
	}
	s := newSite(t)
	sub := testkit.Must(NewSubscriber(s.config, nil))
	defer func() { _ = sub.Close() }()
	if _, err := sub.Subscribe(context.Background(), s.topic); err == nil || !strings.Contains(err.Error(), s.topic) {
		t.Errorf("subscribed to a topic without a stream: %v", err)
	}
	if _, err := sub.Backlog(context.Background(), s.topic); err == nil {
		t.Error("the backlog of a topic without a stream is known")
	}
}

func second[T any](_ T, err error) error { return err }

// Promises P1 and P3: subscribers end one after another while messages flow, by Close and by their context. Nothing is
// lost, and nothing waits for AckWait, which is a minute.
func TestEndsUnderLoad(t *testing.T) {
	const all, ends = 400, 8
	s := newSite(t)
	s.config.InFlight = 4
	s.create()
	ids := make([]string, all)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for part := range slices.Chunk(ids, all/ends) {
			s.send(part...)
		}
	}()
	got := &received{ids: map[string]int{}}
	for i := range ends {
		ctx, cancel := context.WithCancel(context.Background())
		sub := testkit.Must(NewSubscriber(s.config, nil))
		messages := testkit.Must(sub.Subscribe(ctx, s.topic))
		for range all / ends / 2 {
			msg := <-messages
			got.mu.Lock()
			got.ids[msg.UUID]++
			got.mu.Unlock()
			msg.Ack()
		}
		if i%2 == 0 {
			cancel()
		}
		testkit.NoError(t, sub.Close())
		cancel()
	}
	<-sent
	begun := time.Now()
	_, rest := s.subscribe()
	testkit.Eventually(t, "all came", func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return got.count(id)+rest.count(id) == 0 })
	}, rest.String)
	if took := time.Since(begun); took > s.config.AckWait/2 {
		t.Errorf("the last ones came after %s", took)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
