package redrive_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

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

// Feature V5: a dry run of a drain counts what the drain would then do, by cause and target, and shows a sample and
// what is refused.
func TestPlanTopic(t *testing.T) {
	waiting := append(several(12), letter("forged", "", from("admin")), letter("none", "", from("")), letter("old", "", redrivenTimes(5)),
		letter("other", "", func(l *poison.Letter) { l.Origin.Handler = "mail" }), letter("far", "", from("far")), message.NewMessage("plain", nil))
	config := redrive.DrainTopicConfig{
		Rules: redrive.Rules{Allow: []string{"orders", "far"}, Rate: 2, Filter: letters.Filter{Handlers: []string{"billing"}}}, Topic: "orders.dlq",
	}
	s := &shelf{messages: waiting}
	plan := testkit.Must(redrive.Inside().PlanTopic(t.Context(), s, config))
	if plan.Messages != 18 || plan.Letters != 13 || plan.Quarantine != 1 || plan.Refused != 2 || plan.NotChosen != 1 || plan.NoLetters != 1 || time.Duration(plan.Takes) != 6500*time.Millisecond {
		t.Errorf("%+v", plan)
	}
	if len(plan.Targets) != 2 || plan.Targets[0] != (inside.TopicCount{Topic: "orders", Letters: 12}) || plan.Targets[1].Topic != "far" ||
		len(plan.RefusedTopics) != 2 || plan.RefusedTopics[0].Letters != 1 {
		t.Errorf("%+v %+v", plan.Targets, plan.RefusedTopics)
	}
	if len(plan.Causes) != 2 || plan.Causes[0].Letters != 12 || plan.Causes[0].Topic != "orders" || plan.Causes[0].Description == "" || plan.Causes[1].Topic != "far" {
		t.Errorf("%+v", plan.Causes)
	}
	if len(plan.Sample) != 10 || plan.Sample[0].Original.UUID != "id-0" || plan.Sample[0].Target != "orders" {
		t.Errorf("%+v", plan.Sample)
	}
	live, park := &outbox{}, &outbox{}
	drain := topicConfig(t, live, park, waiting...)
	drain.Allow, drain.Filter = config.Allow, config.Filter
	report, err := drain.drain(t.Context())
	if err != nil || report.Redriven != plan.Letters || report.Quarantined != plan.Quarantine || report.Refused != plan.Refused || report.Parked != plan.NotChosen+plan.NoLetters {
		t.Errorf("the drain did %+v, planned %+v, %v", report, plan, err)
	}

	s = &shelf{messages: waiting}
	config.Max = 5
	if plan, err := redrive.Inside().PlanTopic(t.Context(), s, config); err != nil || plan.Messages != 5 || s.looked != 5 {
		t.Errorf("%+v %v, looked at %d", plan, err, s.looked)
	}
}

// A dry run that ends early says what it counted, and why it ended.
func TestPlanTopic_endsEarly(t *testing.T) {
	config := redrive.DrainTopicConfig{Rules: redrive.Rules{Allow: []string{"orders"}}, Topic: "orders.dlq"}
	if plan, err := redrive.Inside().PlanTopic(t.Context(), &shelf{messages: several(3), err: errDown}, config); !errors.Is(err, errDown) || plan.Letters != 3 {
		t.Errorf("%+v %v", plan, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if plan, err := redrive.Inside().PlanTopic(ctx, &shelf{messages: several(3), each: cancel}, config); !errors.Is(err, context.Canceled) || plan.Letters != 1 {
		t.Errorf("%+v %v", plan, err)
	}
	stock := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	defer func() { _ = stock.Close() }()
	if _, err := redrive.Inside().PlanTopic(t.Context(), stock, config); err == nil || !strings.Contains(err.Error(), "no method Browse") || !strings.Contains(err.Error(), "GoChannel") {
		t.Error(err)
	}
	for field, bad := range map[string]redrive.DrainTopicConfig{
		"DrainTopicConfig.Topic": {Rules: redrive.Rules{Allow: []string{"orders"}}},
		"DrainTopicConfig.Allow": {Topic: "orders.dlq"},
		"choose rows of a Store": {Rules: redrive.Rules{Allow: []string{"orders"}, Filter: letters.Filter{After: 1}}, Topic: "orders.dlq"},
	} {
		testkit.Says(t, testkit.Err(redrive.Inside().PlanTopic(t.Context(), &shelf{}, bad)), field)
	}
	if _, err := redrive.Inside().PlanTopic(t.Context(), nil, config); err == nil {
		t.Error("a subscriber that is nil is accepted")
	}
}
