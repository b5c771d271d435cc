package chain

import (
	"maps"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Decision 29: what brokers and adapters add to a delivery is known by name and form; what a producer wrote stays.
func TestAdded(t *testing.T) {
	metadata := message.Metadata{
		"x-delivery-count": "3", "x-acquired-count": "0", "_watermill_amqp_redelivered": "true",
		"tenant": "acme", "x-delivery-limit": "3",
	}
	Strip(metadata)
	if want := (message.Metadata{"tenant": "acme", "x-delivery-limit": "3"}); !maps.Equal(metadata, want) {
		t.Errorf("%v is left, want %v", metadata, want)
	}
	for name, value := range map[string]string{
		"x-delivery-count": "many", "x-acquired-count": "", "_watermill_amqp_redelivered": "no", "": "", "x-delivery-counts": "1",
	} {
		if Added(name, value) {
			t.Errorf("%q: %q is taken for an addition", name, value)
		}
	}
}
