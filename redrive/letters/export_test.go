package letters

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/poison"
)

// IdentityOf is the identity of a letter of service shop.
func IdentityOf(topic string, msg *message.Message) []byte {
	return identify("shop", topic, poison.Read(msg))
}
