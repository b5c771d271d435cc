package lanes

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

// KeyFrom calls the function of a SubscriberConfig that returns the key of a message. A panic is an error: a message
// whose key is not known would overtake others.
func KeyFrom(of func(*message.Message) string, msg *message.Message) (key string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("SubscriberConfig.Key panicked with %v for message %q: it must return the key of every message, or \"\" "+
				"for one without a key", r, msg.UUID)
		}
	}()
	return of(msg), nil
}
