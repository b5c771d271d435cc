package conformance

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/poison"
)

// hostiles are hostile messages on their way through one router, by their payloads.
type hostiles struct {
	sent        int
	healed      atomic.Bool
	mu          sync.Mutex
	first, last map[string]*message.Message
}

// handle ruins each message and fails, until the handler is healed.
func (h *hostiles) handle(b *bench) message.HandlerFunc {
	h.first, h.last = map[string]*message.Message{}, map[string]*message.Message{}
	return func(msg *message.Message) ([]*message.Message, error) {
		if msg.UUID == "good" {
			return nil, b.apply(msg)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		payload := string(msg.Payload)
		if h.healed.Load() {
			h.last[payload] = keep(msg)
			return nil, nil
		}
		if h.first[payload] == nil {
			h.first[payload] = keep(msg)
		}
		ruin(msg)
		return nil, classify.Permanent(errNever)
	}
}

func (h *hostiles) back() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.last)
}

func (h *hostiles) of(payload []byte) (first, last *message.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.first[string(payload)], h.last[string(payload)]
}

// hostileContents are ids and payloads that a transport may change, by what is hostile about each. No two payloads are
// the same.
func hostileContents() map[string]*message.Message {
	all := map[string]*message.Message{
		"id of 300 bytes":    message.NewMessage(strings.Repeat("i", 300), []byte(`{"id":"long"}`)),
		"id with NUL":        message.NewMessage("a\x00b", []byte(`{"id":"NUL"}`)),
		"id not UTF-8":       message.NewMessage("\xff\xfe", []byte(`{"id":"not UTF-8"}`)),
		"id with newlines":   message.NewMessage("a\r\nb: c\n", []byte(`{"id":"newlines"}`)),
		"payload nil":        message.NewMessage("nil", nil),
		"payload not JSON":   message.NewMessage("binary", []byte{0, 0xff, 0xfe, '{'}),
		"payload of 900 KiB": message.NewMessage("large", bytes.Repeat([]byte{0, 0xff}, 450<<10)),
	}
	all["payload nil"].Metadata.Set("k", "v")
	return all
}

// hostileMetadata are metadata that a transport may change.
func hostileMetadata() map[string]*message.Message {
	many := message.Metadata{}
	for i := range 1000 {
		many[fmt.Sprintf("key-%04d", i)] = "value"
	}
	all := map[string]*message.Message{}
	for name, metadata := range map[string]message.Metadata{
		"1,000 keys":               many,
		"value of 100 KiB":         {"k": strings.Repeat("v", 100<<10)},
		"value of 64 KiB":          {"k": strings.Repeat("v", 64<<10)},
		"binary values":            {"k": "\xfe\x00\xff", "empty": ""},
		"reserved keys":            {"_watermill_message_uuid": "another", "x-attempts": "many", "mine": "v"},
		"values empty":             {"empty": "", "k": "v"},
		"values with newlines":     {"k": "one\ntwo", "crlf": "one\r\ntwo: three\r\n\r\nfour", "cr": "one\rtwo"},
		"values with NUL":          {"k": "one\x00two"},
		"values with outer spaces": {"k": "  two before, one after ", "tab": "\tone\t", "only": " "},
		"values not ASCII":         {"k": "größer als ∞, 漢字, 🐘", "bidi": "\u202eabc"},
		"values not UTF-8":         {"k": "\xe4\xf6\xfc"},
		"values like a header":     {"k": "a: b", "quoted": `"a", 'b'; c=d\`, "encoded": "=?utf-8?q?=C3=A4?=", "%": "%20%0a"},
		"keys with spaces":         {"a key": "v", " outer ": "v"},
		"keys with colons":         {"a:key": "v", "a=b;c,d": "v"},
		"keys with newlines":       {"a\nkey: x\r\nb": "v"},
		"keys not ASCII":           {"schlüssel": "v", "鍵": "v"},
		"keys not UTF-8":           {"\xff\xfe": "v"},
		"keys in two cases":        {"tenant-id": "lower", "Tenant-Id": "both", "TENANT-ID": "upper"},
		"keys with dots":           {"a.b": "v", "a_b": "w", "$a": "x", "a[0]": "y"},
		"key empty":                {"": "v"},
		"key of 300 bytes":         {strings.Repeat("k", 300): "v"},
	} {
		all[name] = message.NewMessage(name, []byte(`{"of":"`+name+`"}`))
		all[name].Metadata = metadata
	}
	return all
}

// Promises P2, P4: each hostile message is set aside as it arrived and comes back so; the good one behind them is
// handled. Rows K9 and K15 hold the pub/sub to bring each as it was sent.
func (b *bench) hostileMessages() {
	all := hostileContents()
	maps.Copy(all, hostileMetadata())
	var h hostiles
	stop := b.start(b.channel(), h.handle(b))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if b.target.row.pinned(name) {
			continue
		}
		switch err := b.live.Publish(b.topic, all[name].Copy()); {
		case err == nil:
			h.sent++
		case b.target.Pins["K9/"+name] != "" || b.target.Pins["K15/"+name] != "":
			b.Logf("%s: the pub/sub refuses it, as the pin of K9 or K15 says: %v", name, err)
		default:
			b.Errorf("%s: publish: %v", name, err)
		}
	}
	b.ids("good")
	b.untilApplied("good")
	b.until("all are set aside", func() bool { return int(b.placed.Load()) >= h.sent })
	h.healed.Store(true)
	if report := b.drain(b.dlq(), h.sent); report.Redriven != h.sent {
		b.Errorf("%d were sent, and the redrive reports %+v", h.sent, report)
	}
	b.until("all came back", func() bool { return h.back() >= h.sent })
	stop()
	for name, msg := range all {
		first, again := h.of(msg.Payload)
		switch {
		case first == nil && again == nil:
		case first == nil || again == nil:
			b.Errorf("%s: arrived %t, came back %t", name, first != nil, again != nil)
		default:
			b.wantSame(name+", redriven", again, first)
		}
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
			b.start(b.channel(func(c *spillway.Config) {
				c.Retry.Attempts = 2
			}), func(msg *message.Message) ([]*message.Message, error) {
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

// bound is the size of the largest message where the pub/sub has no bound: then the row gives it one.
const bound = 64 << 10

// bounded is pub, or pub with a bound if the pub/sub has none.
func (b *bench) bounded(pub message.Publisher) message.Publisher {
	if b.target.MaxMessage > 0 {
		return pub
	}
	return refusing{pub, func(_ string, msg *message.Message) error {
		size := len(msg.UUID) + len(msg.Payload)
		for key, value := range msg.Metadata {
			size += len(key) + len(value)
		}
		if size > bound {
			return fmt.Errorf("%d bytes: %w", size, classify.ErrTooLarge)
		}
		return nil
	}}
}

// filling publishes the largest message that the live topic takes, and returns the size of its payload.
func (b *bench) filling() (size int) {
	b.Helper()
	most := b.target.MaxMessage
	if most == 0 {
		most = bound - len("full")
	}
	for spare := 0; spare < most/2; spare = max(16, spare+spare/4) {
		msg := message.NewMessage("full", make([]byte, most-spare))
		err := b.live.Publish(b.topic, msg)
		if err == nil {
			return len(msg.Payload)
		}
		if !(*classify.Classifier)(nil).IsTooLarge(err) {
			b.Fatalf("%d bytes are refused, and not for their size: %v", len(msg.Payload), err)
		}
	}
	b.Fatal("the live topic takes no message of half of Target.MaxMessage")
	return 0
}

// Promises P1, P4: a message that fills the broker's limit ends, although no letter and no stage has room for what they
// add, and those behind it go on. What has room for the count of its redrives comes back.
func (b *bench) fillingMessages() {
	b.variant("letters", func(b *bench) { b.fills(b.start, func(*spillway.Config) {}, classify.Permanent(errNever)) })
	b.variant("stages", func(b *bench) { b.fills(b.startStaged, b.staged(shortStage), errNotYet) })
	b.variant("delay store", func(b *bench) {
		staged, kept := b.staged(shortStage), stored(b.ownDelays())
		b.fills(b.startStaged, func(c *spillway.Config) { staged(c); kept(c) }, errNotYet)
	})
}

type starting func(*spillway.Channel, message.HandlerFunc, ...func(*message.Router)) (stop func())

// fills has the message fail with failure, until it comes out of a stage or was placed.
func (b *bench) fills(start starting, change func(*spillway.Config), failure error) {
	var runs atomic.Int32
	start(b.channel(change, func(c *spillway.Config) {
		c.Publisher = b.bounded(c.Publisher)
		if c.Stages != nil {
			c.Stages.Publisher = b.bounded(c.Stages.Publisher)
		}
	}), func(msg *message.Message) ([]*message.Message, error) {
		if _, staged := msg.Metadata[poison.KeyRetryStage]; msg.UUID == "full" && !staged && b.placed.Load() == 0 {
			runs.Add(1)
			return nil, failure
		}
		return nil, b.apply(msg)
	})
	size := b.filling()
	b.ids("good")
	b.untilApplied("good")
	b.until("the message ends", func() bool { return b.placed.Load() > 0 || b.effects()["full"] > 0 })
	if b.placed.Load() == 0 {
		return
	}
	msg := b.read(b.dlq(), 1)[0]
	if msg.UUID != "full" || len(msg.Payload) != size || runs.Load() > 3 {
		b.Errorf("placed %q with %d bytes after %d runs, of %d bytes", msg.UUID, len(msg.Payload), runs.Load(), size)
	}
	if !inside.Poison.IsLetter(msg) {
		return
	}
	if report := b.drainThrough(b.bounded(b.live), b.dlq(), 1); report.Redriven != 1 {
		b.Errorf("the redrive reports %+v", report)
	}
	b.untilApplied("full")
}

// Promise P2: a letter brings back metadata and ids that the pub/sub would change on their way, or lose.
func (b *bench) lettersOfHostile() {
	all := hostileMetadata()
	for name, msg := range hostileContents() {
		all[name] = msg
	}
	ch := b.channel()
	b.initialize(ch)
	sent := map[string]*message.Message{}
	for name, msg := range all {
		if b.target.row.pinned(name) {
			continue
		}
		placed := msg.Copy()
		placed.SetContext(chain.Within(b.Context(), handlerName, b.topic))
		if err := ch.Queue().Place(placed, classify.Permanent(fmt.Errorf("%w: %s", errNever, name))); err != nil {
			b.Errorf("%s: %v", name, err)
			continue
		}
		sent[string(msg.Payload)] = msg
	}
	for _, l := range b.letters(b.dlq(), len(sent)) {
		msg := sent[string(l.Original.Payload)]
		if msg == nil {
			b.Errorf("a letter of a payload of %d bytes, %.60q", len(l.Original.Payload), l.Original.Payload)
			continue
		}
		b.wantSame(fmt.Sprintf("the letter %.60q", l.Failure.Description), l.Original, msg)
	}
}

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
