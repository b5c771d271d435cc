package redrive

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain/consume"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
)

// Plugin adds to the router a handler for each dead-letter topic, named spillway_redrive_<topic>, that redrives its
// letters. A chain of the whole router lets these messages pass, so that a failure here never becomes the dead letter
// of a dead letter. Plugin makes the topics of
// Park. The router closes sub. A wrong argument is an error of Router.Run, and so
// is a publisher of a handler that is also a publisher of h.
func (h *Handler) Plugin(sub message.Subscriber, topics ...string) message.RouterPlugin {
	add := consume.Plugin("redrive", "spillway_redrive_", sub, topics, func(topic string, msg *message.Message) error {
		_, err := h.handle(msg.Context(), msg, topic)
		return err
	})
	return func(router *message.Router) error {
		if err := add(router); err != nil {
			return err
		}
		router.AddPublisherDecorators(func(pub message.Publisher) (message.Publisher, error) {
			return pub, h.checkPublisher(pub)
		})
		return h.initialize(topics...)
	}
}

// checkPublisher returns an error if pub, the publisher of a handler, is also the publisher or the Park of h. The
// router closes pub when its handler stops, and h could not publish from then on.
func (h *Handler) checkPublisher(pub message.Publisher) error {
	for name, own := range map[string]message.Publisher{"the publisher": h.publisher, "HandlerConfig.Park": h.parking} {
		if decorated.ClosedTogether(pub, own) {
			return fmt.Errorf("redrive: %s (%T) is also the publisher of another handler, which the router closes when that "+
				"handler stops: give the redrive handler a publisher of its own", name, own)
		}
	}
	return nil
}
