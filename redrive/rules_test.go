package redrive

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

type shows struct{ message.Publisher }

type hides struct{ pub message.Publisher }

func (h hides) Publish(topic string, messages ...*message.Message) error {
	return h.pub.Publish(topic, messages...)
}
func (h hides) Close() error { return h.pub.Close() }

// Feature V1: a dead-letter store is no way back, also not behind decorators.
func TestWayBack(t *testing.T) {
	s := &letters.Store{}
	for _, pub := range []message.Publisher{nil, s, shows{s}, &shows{s}, hides{s}, shows{hides{shows{s}}}} {
		if wayBack(pub) == nil {
			t.Errorf("%T is taken for a way back", pub)
		}
	}
	testkit.NoError(t, wayBack(shows{}))
}
