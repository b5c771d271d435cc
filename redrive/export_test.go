package redrive

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/poison"
)

// IdentityOf is the identity of a letter in a store without a service.
func IdentityOf(topic string, msg *message.Message) []byte {
	return identify("", topic, poison.Read(msg))
}
