package stages

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
)

// sharedPublisher is a publisher of several handlers, which the router closes with each of them.
type sharedPublisher struct {
	message.Publisher
	users atomic.Int32
}

func (o *sharedPublisher) Close() error {
	if o.users.Add(-1) > 0 {
		return nil
	}
	return o.Publisher.Close()
}

// String is what the router's context and logs call the publisher.
func (o *sharedPublisher) String() string { return nameOf(o.Publisher) }

// nameOf names a publisher or subscriber as the router does.
func nameOf(v any) string {
	if s, ok := v.(fmt.Stringer); ok {
		return s.String()
	}
	return strings.TrimLeft(fmt.Sprintf("%T", v), "*")
}
