package conformance

import (
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
)

// carriesMetadata is sentence K9, and carriesMessages is K15.
func (b *bench) carriesMetadata() { b.carries(hostileMetadata()) }
func (b *bench) carriesMessages() { b.carries(hostileContents()) }

// carries sends each message alone through one topic and compares what arrives.
func (b *bench) carries(all map[string]*message.Message) {
	b.bare()
	in := b.open(b.group)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		sent := all[name]
		b.variantOn(within(b), name, func(b *bench) {
			b.publish(sent.Copy())
			in.b = b
			msg := in.must("the message")
			b.wantSame("as it arrived", msg, sent)
			msg.Ack()
		})
		in.b = b
	}
}
