package idempotency_test

import (
	"errors"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// keyRows are about messages alone: no database sees how they differ.
var keyRows = []row{
	{"I5-id", "the key is the message's id", func(c *cell) { c.keyed(nil, 1, 2, 1) }},
	{"I5-metadata", "or a metadata field", func(c *cell) { c.keyed(idempotency.ByMetadata("key"), 1, 1, 2) }},
	{"I5-hash", "or the payload's hash", func(c *cell) { c.keyed(idempotency.ByPayloadHash, 2, 1, 1) }},
	{"I5-own", "or what a function of one's own returns", func(c *cell) {
		c.keyed(func(msg *message.Message) (string, error) { return msg.UUID[:1], nil }, 1, 1, 1)
	}},
	{"I5-empty", "an empty key is an error that says what to do, and never one key for many", (*cell).emptyKeys},
	{"I6-bad", "a version that is missing or no number is invalid, and says so", (*cell).badVersions},
}

var anyKeyRows = []row{
	{"I5-any", "keys of 1 byte to 64 KiB, of any bytes, are told apart and recognised", (*cell).anyKeys},
}

// Feature I5: messages that differ in one thing only are one message or two, by what the key is taken from. The payload
// is compared in rows of its own.
func (c *cell) keyed(key func(*message.Message) (string, error), byPayload, byID, byMetadata int) {
	h := c.receiver(idempotency.ReceiverConfig{Key: key, AnyPayload: true}).Middleware(c.write)
	for _, v := range []struct {
		differs string
		change  func(*message.Message)
		want    int
	}{
		{"nothing", func(*message.Message) {}, 1},
		{"payload", func(msg *message.Message) { msg.Payload = []byte("other") }, byPayload},
		{"id", func(msg *message.Message) { msg.UUID = "m2" }, byID},
		{"metadata", func(msg *message.Message) { msg.Metadata.Set("key", "k2") }, byMetadata},
	} {
		first, second := newMessage("m1"), newMessage("m1")
		first.Metadata.Set("key", "k1")
		second.Metadata.Set("key", "k1")
		v.change(second)
		c.applies(h, first, second, first.Copy(), second.Copy())
		got := count(c, c.db, "effects")
		testkit.Check(c, got == v.want, "%s differs: %d effects, want %d", v.differs, got, v.want)
		c.exec(`DELETE FROM effects`, `DELETE FROM spillway_keys`)
	}
}

// Feature I5: what has no key is Invalid, the handler is not called, and nothing is entered.
func (c *cell) emptyKeys() {
	for name, v := range map[string]struct {
		key    func(*message.Message) (string, error)
		msg    *message.Message
		reason string
		say    string
	}{
		"id":       {nil, message.NewMessage("", []byte("p")), "", "the message has no id"},
		"metadata": {idempotency.ByMetadata("key"), newMessage("m1"), classify.ReasonMissingMetadata, `no metadata "key"`},
		"payload":  {idempotency.ByPayloadHash, message.NewMessage("m1", nil), "", "no payload to take the hash of"},
		"own": {func(*message.Message) (string, error) { return "", nil }, newMessage("m1"), "",
			"ReceiverConfig.Key returned an empty key, which all such messages would share"},
	} {
		_, err := c.receiver(idempotency.ReceiverConfig{Key: v.key}).Middleware(c.write)(v.msg)
		testkit.Check(c, class(err) == classify.ClassInvalid && (v.reason == "" || reason(err) == v.reason),
			"%s: judged %s, %q: %v", name, class(err), reason(err), err)
		if err == nil || !strings.Contains(err.Error(), v.say) || !strings.Contains(err.Error(), `consumer "shop/billing"`) {
			c.Errorf("%s: the error does not say %q: %v", name, v.say, err)
		}
	}
	own := classify.Transient(errors.New("boom"))
	for want, key := range map[classify.Class]func(*message.Message) (string, error){
		classify.ClassTransient: func(*message.Message) (string, error) { return "k", own },
		classify.ClassPermanent: func(*message.Message) (string, error) { panic(own) },
	} {
		_, err := c.receiver(idempotency.ReceiverConfig{Key: key}).Middleware(c.write)(newMessage("m1"))
		testkit.Check(c, class(err) == want && strings.Contains(err.Error(), `key of message "m1"`),
			"judged %s: %v", class(err), err)
	}
	c.rows(0, 0)
}

// Features I1, I5: bytes are compared, whatever the database thinks of case, spaces, accents and zeros.
func (c *cell) anyKeys() {
	ids := []string{"\x00", "\xff", " ", "a", "A", "a ", "a\x00", "ä", "a\u0308", "ß", "ss", "'", `\`, "%", "\n", "\r\n", "\ufeffa",
		"null", "sha256:", "\u202ea", "\u2126", "\u03a9"}
	for _, size := range []int{254, 255, 256, 257, 4 << 10, 64<<10 - 1, 64 << 10} {
		ids = append(ids, strings.Repeat("x", size), strings.Repeat("\xfe", size), strings.Repeat("x", size-1)+"y")
	}
	for i := 0; i < 256; i += 5 {
		ids = append(ids, "byte "+string([]byte{byte(i)}))
	}
	var applied int
	h := c.receiver(idempotency.ReceiverConfig{}).Middleware(func(*message.Message) ([]*message.Message, error) {
		applied++
		return nil, nil
	})
	for range 2 {
		for _, id := range ids {
			c.applies(h, newMessage(id))
		}
		testkit.Require(c, applied == len(ids), "%d keys were applied %d times", len(ids), applied)
	}
	c.rows(0, len(ids))
}
