package redrive_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
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
		testkit.Require(t, err == nil && reflect.DeepEqual(report, want) && report.ID != "" &&
			time.Since(begun) >= time.Hour, "%+v, %v after %s", report, err, time.Since(begun))
		testkit.Check(t, len(live.IDs()) == 20 && len(park.All()) == 3 &&
			live.All()[0].Msg.Metadata.Get(poison.KeyRedriveID) == report.ID,
			"%d redriven, %d parked", len(live.IDs()), len(park.All()))
	})
}

// Decision 10: with a backlog the drain ends at what was there, without a wait.
func TestDrainTopic_backlog(t *testing.T) {
	live := &outbox{}
	c := topicConfig(t, live, &outbox{}, several(20)...)
	c.IdleAfter = time.Hour
	c.Backlog = func(_ context.Context, topic string) (int, error) { return 20, nil }
	testkit.Equal(t, "report", testkit.Must(c.drain(t.Context())).Redriven, 20)
	c.Max = 7
	testkit.Equal(t, "report", testkit.Must(c.drain(t.Context())).Redriven, 7)
	c.Backlog = func(context.Context, string) (int, error) { return 0, nil }
	testkit.Equal(t, "report", testkit.Must(c.drain(t.Context())).Taken, 0)
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
	report := testkit.Must(c.drain(t.Context()))
	testkit.Require(t, report.Taken == 1 && report.Redriven == 1 && len(live.All()) == 1, "%+v", report)
}

// Promises P1, P4: what can go nowhere is given back, and the drain ends with the error instead of turning round.
func TestDrainTopic_nothingAccepts(t *testing.T) {
	down := &outbox{Before: refuse}
	c := topicConfig(t, down, down, several(3)...)
	report, err := c.drain(t.Context())
	testkit.Require(t, errors.Is(err, errDown) && report.Taken == 1 && report.Redriven+report.Failed == 0,
		"%+v, %v", report, err)
	park := &outbox{}
	c.Park = park
	report, err = c.drain(t.Context())
	testkit.Require(t, err == nil && report.Failed == 3 && len(park.All()) == 3, "%+v, %v", report, err)
}

// shelf is a Browser of messages in memory.
type shelf struct {
	message.Subscriber
	messages []*message.Message
	looked   int
	err      error
	each     func() // is called before each message is shown
}

func (s *shelf) Browse(_ context.Context, _ string, each func(*message.Message) bool) error {
	for _, msg := range s.messages {
		s.looked++
		if s.each != nil {
			s.each()
		}
		if !each(msg.Copy()) {
			return nil
		}
	}
	return s.err
}

// Feature V5: a dry run of a drain counts what the drain would do, by cause and target, and what is refused.
func TestPlanTopic(t *testing.T) {
	waiting := append(several(12), letter("forged", "", from("admin")), letter("none", "", from("")), letter("old", "", redrivenTimes(5)),
		letter("other", "", func(l *poison.Letter) { l.Origin.Handler = "mail" }), letter("far", "", from("far")), message.NewMessage("plain", nil))
	config := redrive.DrainTopicConfig{
		Rules: redrive.Rules{Allow: []string{"orders", "far"}, Rate: 2, Filter: letters.Filter{Handlers: []string{"billing"}}}, Topic: "orders.dlq",
	}
	s := &shelf{messages: waiting}
	plan := testkit.Must(hidden.Of((*redrive.Handler)(nil)).PlanTopic(t.Context(), s, config))
	testkit.Check(t, plan.Messages == 18 && plan.Letters == 13 && plan.Quarantine == 1 && plan.Refused == 2 &&
		plan.NotChosen == 1 && plan.NoLetters == 1 && time.Duration(plan.Takes) == 6500*time.Millisecond, "%+v", plan)
	testkit.Check(t, len(plan.Targets) == 2 && plan.Targets[0] == (inside.TopicCount{Topic: "orders", Letters: 12}) &&
		plan.Targets[1].Topic == "far" && len(plan.RefusedTopics) == 2 && plan.RefusedTopics[0].Letters == 1,
		"%+v %+v", plan.Targets, plan.RefusedTopics)
	testkit.Check(t, len(plan.Causes) == 2 && plan.Causes[0].Letters == 12 && plan.Causes[0].Topic == "orders" &&
		plan.Causes[0].Description != "" && plan.Causes[1].Topic == "far", "%+v", plan.Causes)
	testkit.Check(t, len(plan.Sample) == 10 && plan.Sample[0].Original.UUID == "id-0" &&
		plan.Sample[0].Target == "orders", "%+v", plan.Sample)
	live, park := &outbox{}, &outbox{}
	drain := topicConfig(t, live, park, waiting...)
	drain.Allow, drain.Filter = config.Allow, config.Filter
	report, err := drain.drain(t.Context())
	testkit.Check(t, err == nil && report.Redriven == plan.Letters && report.Quarantined == plan.Quarantine &&
		report.Refused == plan.Refused && report.Parked == plan.NotChosen+plan.NoLetters,
		"the drain did %+v, planned %+v, %v", report, plan, err)

	s = &shelf{messages: waiting}
	config.Max = 5
	plan, err = hidden.Of((*redrive.Handler)(nil)).PlanTopic(t.Context(), s, config)
	testkit.Check(t, err == nil && plan.Messages == 5 && s.looked == 5, "%+v %v, looked at %d", plan, err, s.looked)
}

// A dry run that ends early says what it counted, and why it ended.
func TestPlanTopic_endsEarly(t *testing.T) {
	config := redrive.DrainTopicConfig{Rules: redrive.Rules{Allow: []string{"orders"}}, Topic: "orders.dlq"}
	plan, err := hidden.Of((*redrive.Handler)(nil)).PlanTopic(t.Context(), &shelf{messages: several(3), err: errDown}, config)
	testkit.Check(t, errors.Is(err, errDown) && plan.Letters == 3, "%+v %v", plan, err)
	ctx, cancel := context.WithCancel(t.Context())
	plan, err = hidden.Of((*redrive.Handler)(nil)).PlanTopic(ctx, &shelf{messages: several(3), each: cancel}, config)
	testkit.Check(t, errors.Is(err, context.Canceled) && plan.Letters == 1, "%+v %v", plan, err)
	stock := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	defer func() { _ = stock.Close() }()
	_, err = hidden.Of((*redrive.Handler)(nil)).PlanTopic(t.Context(), stock, config)
	testkit.Check(t, err != nil && strings.Contains(err.Error(), "no method Browse") &&
		strings.Contains(err.Error(), "GoChannel"), "%v", err)
}
