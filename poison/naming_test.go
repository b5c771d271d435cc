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
	"github.com/watermill-spillway/spillway/settings"
)

// Feature D3, D5, D12: with a pattern without a placeholder one topic, which Initialize makes, takes the letters of all
// topics, handlers and classes, and what fails in its own consumer is parked.
func TestOneTopicForAll(t *testing.T) {
	dead := &initializingSink{}
	config := QueueConfig{Shared: settings.Shared{Naming: naming.Scheme{DeadLetter: "service.dead"}}}
	queue := newQueue(t, dead, config)
	if err := errors.Join(queue.Inside().Initialize("orders", ""), queue.Inside().Initialize("payments", "billing")); err != nil {
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
