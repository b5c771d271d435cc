package redrive

import "github.com/ThreeDotsLabs/watermill/message"

// CheckPublisher is checkPublisher.
func (h *Handler) CheckPublisher(pub message.Publisher) error { return h.checkPublisher(pub) }
