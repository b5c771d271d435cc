package poison

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature D3: the names.
func TestNaming(t *testing.T) {
	source := Source{Topic: "orders", Handler: "billing"}
	invalid := source
	invalid.Class = classify.ClassInvalid
	for got, want := range map[string]string{
		DefaultNaming(source): "orders.dlq", DefaultNaming(invalid): "orders.invalid",
		PulsarNaming("sub")(source): "orders-sub-DLQ", SuffixNaming("-dead")(invalid): "orders-dead",
		FixedTopic("dead")(source): "dead", FixedTopic("dead")(invalid): "dead",
		PerHandlerNaming(source): "orders.billing.dlq", PerHandlerNaming(invalid): "orders.billing.invalid",
		ParkedTopic("orders.dlq"): "orders.dlq.parked",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for topic, want := range map[string]bool{"orders": false, "orders.dlq": true, "orders.invalid": true, "orders.dlq.parked": true, "orders.dlq.quarantine": true} {
		if covered := Naming(DefaultNaming).covers(topic); covered != want {
			t.Errorf("%s: covered %t", topic, covered)
		}
	}
	byClass := Naming(func(s Source) string { return s.Topic + "." + s.Class.String() })
	if !Naming(PerHandlerNaming).covers("orders.billing.dlq") || !byClass.covers("orders.unknown") || !FixedTopic("dead").covers("dead") || FixedTopic("dead").covers("orders") {
		t.Error("a naming does not know its own topics")
	}
	if !Naming(PerHandlerNaming).usesHandler() || Naming(DefaultNaming).usesHandler() {
		t.Error("usesHandler is wrong")
	}
}

// Feature D3, D5, D12: with FixedTopic one topic, which Initialize makes, takes the letters of all topics, handlers and
// classes, and what fails in its own consumer is parked.
func TestFixedTopic(t *testing.T) {
	dead := &initializingSink{}
	config := QueueConfig{Naming: FixedTopic("service.dead")}
	queue, err := NewQueue(dead, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := queue.Initialize(Source{Topic: "orders"}, Source{Topic: "payments", Handler: "billing"}); err != nil {
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
	if _, err := NewQueue(dead, QueueConfig{Naming: FixedTopic("")}); err == nil {
		t.Error("a queue whose letters have no topic")
	}
}
