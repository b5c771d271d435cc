package placing

import (
	"context"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Laned is a Delivery whose subscriber delivers the next message of its key when this one is settled, and the chain has
// returned: a handler may ack before it has done its work. Chains makes it so.
type Laned interface {
	// Enter is called when a chain begins with msg. If it returns true, Return is called when the chain has returned.
	Enter(msg *message.Message) bool
	Return()
}

// Lanes is set when the process has a subscriber with lanes. Without one a message costs no look into its context.
var Lanes atomic.Bool

// LaneOf returns the Laned of ctx if it delivered msg, or nil. Call Return once.
func LaneOf(ctx context.Context, msg *message.Message) Laned {
	if lane, ok := ctx.Value(Key{}).(Laned); ok && lane.Enter(msg) {
		return lane
	}
	return nil
}
