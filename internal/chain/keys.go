package chain

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

// A router leaves what it knows in the contexts of messages, and Watermill exports only functions that read it. Two
// things must be written too: a message that comes out of a retry stage must look as if it came to its own handler, to
// user code as well; and work on behalf of a message outside of a router needs the names too. So KeyOf finds the keys.
// TestWatermillKeys says what to do if another version of Watermill keeps them differently.
var (
	handlerName    = KeyOf(func(ctx context.Context) { message.HandlerNameFromCtx(ctx) })
	subscribeTopic = KeyOf(func(ctx context.Context) { message.SubscribeTopicFromCtx(ctx) })
)

// Within returns ctx with the names that a router leaves in the contexts of a handler's messages.
func Within(ctx context.Context, handler, topic string) context.Context {
	return context.WithValue(context.WithValue(ctx, handlerName, handler), subscribeTopic, topic)
}

// KeyOf returns the key under which get looks for a value in a context. The key's type is private to its package, but
// each context that get reads sees the key.
func KeyOf(get func(context.Context)) any {
	read := &reading{Context: context.Background()}
	get(read)
	return read.key
}

// reading is a context that remembers which key was read.
type reading struct {
	context.Context
	key any
}

func (r *reading) Value(key any) any {
	r.key = key
	return nil
}
