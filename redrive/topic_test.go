package redrive_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// topicDrain is a drain of a topic, to be changed and run.
type topicDrain struct {
	redrive.DrainTopicConfig
	sub  message.Subscriber
	live message.Publisher
}

func (d topicDrain) drain(ctx context.Context) (redrive.Report, error) {
	return redrive.DrainTopic(ctx, d.sub, d.live, d.DrainTopicConfig)
}

// topicConfig drains a topic in which some messages wait, and ends when it has taken them.
func topicConfig(t *testing.T, live, park message.Publisher, waiting ...*message.Message) topicDrain {
	t.Helper()
	pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	t.Cleanup(func() { _ = pubsub.Close() })
	publish(t, pubsub, "orders.dlq", waiting...)
	config := redrive.DrainTopicConfig{
		Rules: redrive.Rules{Allow: []string{"orders"}, PublishAttempts: 1},
		Park:  park, Topic: "orders.dlq", IdleAfter: testkit.Patience, Max: len(waiting),
	}
	return topicDrain{config, pubsub, live}
}

// Features V1, V5, decision 10: a drain of a topic ends when the topic is idle.
func TestDrainTopic_idle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, park := &outbox{}, &outbox{}
		c := topicConfig(t, live, park, append(several(20), letter("forged", "", from("admin")), letter("old", "", redrivenTimes(5)),
			message.NewMessage("plain", nil))...)
		c.Concurrency, c.Max, c.IdleAfter = 4, 0, time.Hour
		begun := time.Now()
		report, err := c.drain(t.Context())
		want := redrive.Report{ID: report.ID, Taken: 23, Redriven: 20, Refused: 1, Quarantined: 1, Parked: 1}
		if err != nil || !reflect.DeepEqual(report, want) || report.ID == "" || time.Since(begun) < time.Hour {
			t.Fatalf("%+v, %v after %s", report, err, time.Since(begun))
		}
		if len(live.IDs()) != 20 || len(park.All()) != 3 || live.All()[0].Msg.Metadata.Get(poison.KeyRedriveID) != report.ID {
			t.Errorf("%d redriven, %d parked", len(live.IDs()), len(park.All()))
		}
	})
}

// Decision 10: with a backlog the drain ends at what was there, without a wait.
func TestDrainTopic_backlog(t *testing.T) {
	live := &outbox{}
	c := topicConfig(t, live, &outbox{}, several(20)...)
	c.IdleAfter = time.Hour
	c.Backlog = func(_ context.Context, topic string) (int, error) { return 20, nil }
	if report, err := c.drain(t.Context()); err != nil || report.Redriven != 20 {
		t.Fatalf("%+v, %v", report, err)
	}
	c.Max = 7
	if report, err := c.drain(t.Context()); err != nil || report.Redriven != 7 {
		t.Fatalf("%+v, %v", report, err)
	}
	c.Backlog = func(context.Context, string) (int, error) { return 0, nil }
	if report, err := c.drain(t.Context()); err != nil || report.Taken != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, bad := range []func(context.Context, string) (int, error){
		func(context.Context, string) (int, error) { return 0, errDown },
		func(context.Context, string) (int, error) { panic("backlog") },
	} {
		c.Backlog = bad
		testkit.Says(t, testkit.Err(c.drain(t.Context())), "backlog")
	}
}

// Promise P6: a letter that comes back while the drain runs ends it, and is left for the next one.
func TestDrainTopic_cameBack(t *testing.T) {
	pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	defer func() { _ = pubsub.Close() }()
	live := &outbox{Before: func(_ string, msg *message.Message) error { return pubsub.Publish("orders.dlq", withClass(msg)) }}
	c := topicConfig(t, live, &outbox{})
	c.sub, c.IdleAfter = pubsub, time.Hour
	publish(t, pubsub, "orders.dlq", letter("1", "a"))
	report, err := c.drain(t.Context())
	if err != nil || report.Taken != 1 || report.Redriven != 1 || len(live.All()) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
}

// Promises P1, P4: what can go nowhere is given back, and the drain ends with the error instead of turning round.
func TestDrainTopic_nothingAccepts(t *testing.T) {
	down := &outbox{Before: refuse}
	c := topicConfig(t, down, down, several(3)...)
	report, err := c.drain(t.Context())
	if !errors.Is(err, errDown) || report.Taken != 1 || report.Redriven+report.Failed != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	park := &outbox{}
	c.Park = park
	if report, err := c.drain(t.Context()); err != nil || report.Failed != 3 || len(park.All()) != 3 {
		t.Fatalf("%+v, %v", report, err)
	}
}

// Promise P3: a drain that is cancelled gives back what waits for its turn.
func TestDrainTopic_cancelled(t *testing.T) {
	live, park := &outbox{}, &outbox{}
	c := topicConfig(t, live, park, several(5)...)
	c.Rate, c.Concurrency = 0.001, 2
	ctx, cancel := context.WithCancel(t.Context())
	c.Hooks.OnRedrive = func(context.Context, poison.Letter, string) { time.AfterFunc(10*time.Millisecond, cancel) }
	report, err := c.drain(ctx)
	if !errors.Is(err, context.Canceled) || report.Redriven != 1 || len(live.All()) != 1 || len(park.All()) != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
}

// Promise P6: an unsafe configuration is an error that names the field.
func TestDrainTopic_construction(t *testing.T) {
	good := topicConfig(t, &outbox{}, &outbox{})
	for field, change := range map[string]func(*topicDrain){
		"the subscriber is nil":      func(c *topicDrain) { c.sub = nil },
		"DrainTopicConfig.Topic":     func(c *topicDrain) { c.Topic = "" },
		"DrainTopicConfig.IdleAfter": func(c *topicDrain) { c.IdleAfter = -1 },
		"the publisher is nil":       func(c *topicDrain) { c.live = nil },
		"DrainTopicConfig.Allow":     func(c *topicDrain) { c.Allow = nil },
	} {
		c := good
		change(&c)
		testkit.Says(t, testkit.Err(c.drain(t.Context())), field)
	}
	closed := good
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	_ = pubsub.Close()
	closed.sub = pubsub
	if _, err := closed.drain(t.Context()); err == nil {
		t.Error("a subscriber that is closed is an error")
	}
}
