package redrive

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/consume"
)

// Plugin adds to the router a handler for each dead-letter topic, named spillway_redrive_<topic>, that redrives its letters.
// A chain of the whole router lets these messages pass, so that a failure here never becomes the dead letter of a dead
// letter. Plugin calls Initialize. The router closes sub. A wrong argument is an error of Router.Run.
func (h *Handler) Plugin(sub message.Subscriber, topics ...string) message.RouterPlugin {
	add := consume.Plugin("redrive", "spillway_redrive_", sub, topics, func(topic string, msg *message.Message) error {
		_, err := h.handle(msg.Context(), msg, topic)
		return err
	})
	return func(router *message.Router) error {
		if err := add(router); err != nil {
			return err
		}
		return h.Initialize(topics...)
	}
}
