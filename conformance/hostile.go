package conformance

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
)

func hostileMessages() map[string]*message.Message {
	with := func(id string, payload []byte, metadata message.Metadata) *message.Message {
		msg := message.NewMessage(id, payload)
		msg.Metadata = metadata
		return msg
	}
	many := message.Metadata{}
	for i := range 1000 {
		many[fmt.Sprintf("key-%04d", i)] = "value"
	}
	json := []byte(`{"n":1}`)
	return map[string]*message.Message{
		"id of 300 bytes":    with(strings.Repeat("i", 300), json, nil),
		"id with NUL":        with("a\x00b", json, nil),
		"id not UTF-8":       with("\xff\xfe", json, nil),
		"payload nil":        with("nil", nil, message.Metadata{"k": "v"}),
		"payload not JSON":   with("binary", []byte{0, 0xff, 0xfe, '{'}, nil),
		"payload of 900 KiB": with("large", bytes.Repeat([]byte{0, 0xff}, 450<<10), nil),
		"1,000 keys":         with("many", json, many),
		"value of 100 KiB":   with("long", json, message.Metadata{"k": strings.Repeat("v", 100<<10)}),
		"binary values":      with("binary-values", json, message.Metadata{"k": "\xfe\x00\xff", "empty": ""}),
		"reserved keys":      with("reserved", json, message.Metadata{"_watermill_message_uuid": "another", "x-attempts": "many", "mine": "v"}),
	}
}

// Promises P2, P4: each hostile message is set aside as it arrived and comes back as it was; the good one behind it is
// handled.
func (b *bench) hostileMessages() {
	for name, msg := range hostileMessages() {
		b.variant(name, func(b *bench) { b.survives(msg, func() { b.publish(msg.Copy()) }) })
	}
	b.variant("id empty", func(b *bench) { // for the receiver it is no key
		b.failing(b.channel(), func(string) error { return nil })
		b.ids("", "good")
		b.untilApplied("good")
		b.untilPlaced(1)
		if l := b.letter(b.invalid()); l.Original.UUID != "" || !strings.Contains(l.Failure.Description, "id") {
			b.Errorf("set aside: %q, %s", l.Original.UUID, l.Failure.Description)
		}
		b.wantOnce("good")
	})
}

// Promise P4: whatever a handler does, its message is set aside with a reason, and the good one behind it is handled.
func (b *bench) hostileHandlers() {
	for name, test := range map[string]struct {
		handle func(*message.Message) error
		reason string
	}{
		"times out": {func(msg *message.Message) error {
			ctx, cancel := context.WithTimeout(msg.Context(), 10*time.Millisecond)
			defer cancel()
			<-ctx.Done()
			return ctx.Err()
		}, classify.ReasonTransientMaxRetries},
		"panics": {func(*message.Message) error { panic("boom") }, classify.ReasonPanic},
		"Goexit": {func(*message.Message) error { runtime.Goexit(); return nil }, classify.ReasonGoexit},
	} {
		b.variant(name, func(b *bench) {
			b.start(b.channel(func(c *spillway.Config) { c.Retry.Attempts = 2 }), func(msg *message.Message) ([]*message.Message, error) {
				if msg.UUID == "bad" {
					return nil, test.handle(msg)
				}
				return nil, b.apply(msg)
			})
			b.ids("bad", "good")
			b.untilApplied("good")
			b.untilPlaced(1)
			if l := b.letter(b.dlq()); l.Original.UUID != "bad" || l.Failure.Reason != test.reason {
				b.Errorf("set aside: %q with reason %q", l.Original.UUID, l.Failure.Reason)
			}
		})
	}
}

// Promises P2, P4: what only the broker's own client can send survives too.
func (b *bench) hostileRecords() {
	b.need("Hostile", len(b.target.Hostile) > 0)
	for _, hostile := range b.target.Hostile {
		b.variant(hostile.Name, func(b *bench) {
			back := b.survives(nil, func() { hostile.Publish(b.T, b.topic) })
			if hostile.Check != nil {
				hostile.Check(b.T, back)
			}
		})
	}
}

// Promise P1: of what many publishers send at once, every message is handled.
func (b *bench) publishersAtOnce() {
	const publishers, each = 4, 100
	b.start(b.channel(), func(msg *message.Message) ([]*message.Message, error) { return nil, b.apply(msg) })
	var ids []string
	var sending sync.WaitGroup
	for p := range publishers {
		var own []*message.Message
		for i := range each {
			own = append(own, newMessage(fmt.Sprintf("%d-%d", p, i)))
			ids = append(ids, own[i].UUID)
		}
		pub := b.publisher()
		sending.Go(func() {
			for _, msg := range own {
				if err := pub.Publish(b.topic, msg); err != nil {
					b.Errorf("publish: %v", err)
				}
			}
		})
	}
	sending.Wait()
	b.untilApplied(ids...)
	b.wantOnce(ids...)
}
