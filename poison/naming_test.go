package poison

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/naming"
)

// Feature D3, D5, D12: with a pattern without a placeholder one topic, which Initialize makes, takes the letters of all topics,
// handlers and classes, and what fails in its own consumer is parked.
func TestOneTopicForAll(t *testing.T) {
	dead := &initializingSink{}
	config := QueueConfig{Naming: naming.Scheme{DeadLetter: "service.dead"}}
	queue, err := NewQueue(dead, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := queue.Initialize(naming.Source{Topic: "orders"}, naming.Source{Topic: "payments", Handler: "billing"}); err != nil {
		t.Fatal(err)
	}
	for topic, err := range map[string]error{"orders": errors.New("boom"), "payments": classify.Invalid(errors.New("bad"))} {
		r := start(t, topic, dead, config, failing(err))
		r.publish(message.NewMessage(topic, nil))
	}
	testkit.Eventually(t, "both letters are there", func() bool { return dead.topics() == "service.dead:2" })

	letter := dead.in("service.dead")[0]
	r := start(t, "service.dead", dead, config, failing(errors.New("its consumer fails")))
	r.publish(letter)
	testkit.Eventually(t, "it is parked", func() bool { return len(dead.in("service.dead.parked")) == 1 })
	if got := len(dead.in("service.dead")); got != 2 {
		t.Errorf("%d letters", got)
	}
	slices.Sort(dead.asked)
	if asked := strings.Join(slices.Compact(dead.asked), " "); asked != "service.dead service.dead.parked" {
		t.Errorf("asked for %s", asked)
	}
}

// Feature D3, D5, D12: in every style, letters, invalid ones and parked ones go to topics that were made, and what fails in the consumer
// of a dead-letter topic is parked.
func TestStyles(t *testing.T) {
	for style, want := range map[naming.Style][]string{
		naming.Dots:   {"orders.dlq", "orders.invalid", "orders.dlq.parked"},
		naming.Kafka:  {"orders.dlq", "orders.invalid", "orders.dlq.parked"},
		naming.Dashes: {"orders-dlq", "orders-invalid", "orders-dlq-parked"},
		naming.NATS:   {"orders-dlq", "orders-invalid", "orders-dlq-parked"},
	} {
		dead, config := &initializingSink{}, QueueConfig{Naming: naming.Scheme{Style: style}}
		live := start(t, "orders", dead, config, func(msg *message.Message) ([]*message.Message, error) {
			return failing(map[string]error{"bad": errors.New("boom"), "invalid": classify.Invalid(errors.New("invalid"))}[msg.UUID])(msg)
		})
		live.publish(message.NewMessage("bad", nil))
		live.publish(message.NewMessage("invalid", nil))
		testkit.Eventually(t, "both letters are there", func() bool { return len(dead.in(want[0])) == 1 && len(dead.in(want[1])) == 1 })
		letters := start(t, want[0], dead, config, failing(errors.New("its consumer fails")))
		letters.publish(dead.in(want[0])[0])
		testkit.Eventually(t, "it is parked", func() bool { return len(dead.in(want[2])) == 1 })
		slices.Sort(dead.asked)
		slices.Sort(want)
		if !slices.Equal(slices.Compact(dead.asked), want) {
			t.Errorf("%s: asked for %v, want %v", style, dead.asked, want)
		}
	}
}
