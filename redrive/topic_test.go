package redrive_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

func topicConfig(t *testing.T, live, park message.Publisher, waiting ...*message.Message) redrive.DrainTopicConfig {
	t.Helper()
	pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	t.Cleanup(func() { _ = pubsub.Close() })
	publish(t, pubsub, "orders.dlq", waiting...)
	return redrive.DrainTopicConfig{
		HandlerConfig: redrive.HandlerConfig{Publisher: live, Park: park, Allow: []string{"orders"}, PublishAttempts: 1},
		Subscriber:    pubsub, Topic: "orders.dlq", IdleAfter: 200 * time.Millisecond,
	}
}

// Features V1, V5, decision 10: a drain of a topic ends when the topic is idle.
func TestDrainTopic_idle(t *testing.T) {
	live, park := &outbox{}, &outbox{}
	c := topicConfig(t, live, park, append(letters(20), letter("forged", "", from("admin")), letter("old", "", redrivenTimes(5)),
		message.NewMessage("plain", nil))...)
	c.Concurrency = 4
	report, err := redrive.Drain(t.Context(), c)
	want := redrive.Report{ID: report.ID, Taken: 23, Redriven: 20, Refused: 1, Quarantined: 1, Parked: 1}
	if err != nil || !reflect.DeepEqual(report, want) || report.ID == "" {
		t.Fatalf("%+v, %v", report, err)
	}
	if len(live.ids()) != 20 || len(park.all()) != 3 || live.all()[0].msg.Metadata.Get(poison.KeyRedriveID) != report.ID {
		t.Errorf("%d redriven, %d parked", len(live.ids()), len(park.all()))
	}
}

// Decision 10: with a backlog the drain ends at what was there, without a wait.
func TestDrainTopic_backlog(t *testing.T) {
	live := &outbox{}
	c := topicConfig(t, live, &outbox{}, letters(20)...)
	c.IdleAfter = time.Hour
	c.Backlog = func(_ context.Context, topic string) (int, error) { return 20, nil }
	if report, err := redrive.Drain(t.Context(), c); err != nil || report.Redriven != 20 {
		t.Fatalf("%+v, %v", report, err)
	}
	c.Max = 7
	if report, err := redrive.Drain(t.Context(), c); err != nil || report.Redriven != 7 {
		t.Fatalf("%+v, %v", report, err)
	}
	c.Backlog = func(context.Context, string) (int, error) { return 0, nil }
	if report, err := redrive.Drain(t.Context(), c); err != nil || report.Taken != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, bad := range []func(context.Context, string) (int, error){
		func(context.Context, string) (int, error) { return 0, errDown },
		func(context.Context, string) (int, error) { panic("backlog") },
	} {
		c.Backlog = bad
		if _, err := redrive.Drain(t.Context(), c); err == nil || !strings.Contains(err.Error(), "backlog") {
			t.Error(err)
		}
	}
}

// Promise P6: a letter that comes back while the drain runs ends it, and is left for the next one.
func TestDrainTopic_cameBack(t *testing.T) {
	pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	defer func() { _ = pubsub.Close() }()
	live := &outbox{before: func(_ string, msg *message.Message) error { return pubsub.Publish("orders.dlq", withClass(msg)) }}
	c := topicConfig(t, live, &outbox{})
	c.Subscriber, c.IdleAfter = pubsub, time.Hour
	publish(t, pubsub, "orders.dlq", letter("1", "a"))
	report, err := redrive.Drain(t.Context(), c)
	if err != nil || report.Taken != 1 || report.Redriven != 1 || len(live.all()) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
}

// Promises P1, P4: what can go nowhere is given back, and the drain ends with the error instead of turning round.
func TestDrainTopic_nothingAccepts(t *testing.T) {
	down := &outbox{before: refuse}
	c := topicConfig(t, down, down, letters(3)...)
	report, err := redrive.Drain(t.Context(), c)
	if !errors.Is(err, errDown) || report.Taken != 1 || report.Redriven+report.Failed != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	park := &outbox{}
	c.Park = park
	if report, err := redrive.Drain(t.Context(), c); err != nil || report.Failed != 3 || len(park.all()) != 3 {
		t.Fatalf("%+v, %v", report, err)
	}
}

// Promise P3: a drain that is cancelled gives back what waits for its turn.
func TestDrainTopic_cancelled(t *testing.T) {
	live, park := &outbox{}, &outbox{}
	c := topicConfig(t, live, park, letters(5)...)
	c.Rate, c.Concurrency = 0.001, 2
	ctx, cancel := context.WithCancel(t.Context())
	c.Hooks.OnRedrive = func(context.Context, poison.Letter, string) { time.AfterFunc(10*time.Millisecond, cancel) }
	report, err := redrive.Drain(ctx, c)
	if !errors.Is(err, context.Canceled) || report.Redriven != 1 || len(live.all()) != 1 || len(park.all()) != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
}

// Promise P6: an unsafe configuration is an error that names the field.
func TestDrainTopic_construction(t *testing.T) {
	good := topicConfig(t, &outbox{}, &outbox{})
	for field, change := range map[string]func(*redrive.DrainTopicConfig){
		"DrainTopicConfig.Subscriber": func(c *redrive.DrainTopicConfig) { c.Subscriber = nil },
		"DrainTopicConfig.Topic":      func(c *redrive.DrainTopicConfig) { c.Topic = "" },
		"DrainTopicConfig.IdleAfter":  func(c *redrive.DrainTopicConfig) { c.IdleAfter = -1 },
		"DrainTopicConfig.Publisher":  func(c *redrive.DrainTopicConfig) { c.Publisher = nil },
		"DrainTopicConfig.Allow":      func(c *redrive.DrainTopicConfig) { c.Allow = nil },
	} {
		c := good
		change(&c)
		if _, err := redrive.Drain(t.Context(), c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	closed := good
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	_ = pubsub.Close()
	closed.Subscriber = pubsub
	if _, err := redrive.Drain(t.Context(), closed); err == nil {
		t.Error("a subscriber that is closed is an error")
	}
}
