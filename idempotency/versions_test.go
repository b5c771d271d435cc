package idempotency_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var versionRows = []row{
	{"I6-versions", "a higher version is applied, a lower one skipped and counted, an equal one a duplicate; compared as numbers", (*cell).versions},
	{"I6-at-once", "versions that arrive at once leave the highest", (*cell).versionsAtOnce},
}

var reusedRows = []row{
	{"I7-reused", "a key with another payload is invalid, with reason key_reused, and nothing is written", (*cell).reused},
	{"I7-aside", "such a message is set aside as it was, not lost, and those behind it go on", (*cell).reusedAside},
}

// versioned is a message of one business key.
func versioned(version any) *message.Message {
	msg := message.NewMessage(fmt.Sprint("v", version), fmt.Appendf(nil, "state of %v", version))
	msg.Metadata.Set("key", "m1")
	if version != nil {
		msg.Metadata.Set("version", fmt.Sprint(version))
	}
	return msg
}

func (c *cell) versionReceiver(onStale func(context.Context, idempotency.Key, int64, int64), onDuplicate func(context.Context, idempotency.Key)) *idempotency.Receiver {
	return c.receiver(idempotency.ReceiverConfig{
		Key: idempotency.ByMetadata("key"), Version: idempotency.VersionMetadata("version"), Hooks: idempotency.Hooks{
			OnStale: onStale, OnDuplicate: onDuplicate,
		},
	})
}

// Feature I6.
func (c *cell) versions() {
	var stale [][2]int64
	duplicates := 0
	var applied []string
	ids := map[string]bool{}
	h := c.versionReceiver(
		func(_ context.Context, key idempotency.Key, version, applied int64) {
			testkit.Equal(c, "stale", key, (idempotency.Key{Consumer: "shop/billing", ID: "m1"}))
			stale = append(stale, [2]int64{version, applied})
		},
		func(context.Context, idempotency.Key) { duplicates++ },
	).Middleware(c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
		applied = append(applied, msg.Metadata.Get("version"))
		return []*message.Message{newMessage("")}, nil
	}))
	const least, most = "-9223372036854775808", "9223372036854775807"
	for _, v := range []struct {
		version any
		outputs int
	}{
		{least, 1}, {-10, 1}, {-9, 1}, {-10, 0}, {0, 1}, {9, 1}, {10, 1}, {9, 0}, {"+11", 1}, {11, 1}, {"0100", 1}, {99, 0}, {100, 1},
		{most, 1}, {most, 1}, {least, 0},
	} {
		msg := versioned(v.version)
		if v.version == 11 || v.version == 100 { // the same state as before, written in another way
			msg.Payload = versioned(map[any]string{11: "+11", 100: "0100"}[v.version]).Payload
		}
		out, err := h(msg)
		testkit.Require(c, err == nil && len(out) == v.outputs, "version %v: %v, %v", v.version, out, err)
		if v.outputs > 0 {
			ids[out[0].UUID] = true
		}
	}
	testkit.Equal(c, "ids of the outputs of nine versions, and of three duplicates", len(ids), 9)
	want := []string{least, "-10", "-9", "0", "9", "10", "+11", "0100", most}
	testkit.Check(c, slices.Equal(applied, want), "applied %v, want %v", applied, want)
	if want := [][2]int64{{-10, -9}, {9, 10}, {99, 100}, {-1 << 63, 1<<63 - 1}}; !slices.Equal(stale, want) || duplicates != 3 {
		c.Errorf("%v were stale, want %v; %d duplicates, want 3", stale, want, duplicates)
	}
	c.rows(9, 1)
}

// Feature I6, promise P7: in whatever order they come to be handled, none is applied after a higher one.
func (c *cell) versionsAtOnce() {
	h := c.versionReceiver(nil, nil).Middleware(func(msg *message.Message) ([]*message.Message, error) {
		_, err := idempotency.Tx(msg.Context()).Exec(`INSERT INTO effects VALUES ('` + msg.Metadata.Get("version") + `')`)
		return nil, err
	})
	atOnce(c.T, 24, func(i int) error { _, err := h(versioned(i / 2)); return err })
	c.rows(count(c, c.db, "effects"), 1)
	testkit.Equal(c, "the key is not at version 11", count(c, c.db, `spillway_keys WHERE version = 11`), 1)
	if all, different := count(c, c.db, "effects"), count(c, c.db, "(SELECT DISTINCT id FROM effects) AS d"); all != different {
		c.Errorf("%d effects of %d versions", all, different)
	}
}

// Feature I6.
func (c *cell) badVersions() {
	h := c.versionReceiver(nil, nil).Middleware(c.write)
	for _, bad := range []any{nil, "one", "1.5", "1e3", " 1", "0x1", "9223372036854775808", "-9223372036854775809", "--1", "١", "1\x00"} {
		_, err := h(versioned(bad))
		if class(err) != classify.ClassInvalid || (reason(err) == classify.ReasonMissingMetadata) != (bad == nil) {
			c.Errorf("version %v: judged %s, %q: %v", bad, class(err), reason(err), err)
			continue
		}
		for _, text := range []string{`"version"`, `key "m1" of consumer "shop/billing"`} {
			testkit.Check(c, strings.Contains(err.Error(), text),
				"version %v: the error does not say %s: %v", bad, text, err)
		}
	}
	c.rows(0, 0)
}

// Feature I7.
func (c *cell) reused() {
	r := c.receiver(idempotency.ReceiverConfig{Hooks: idempotency.Hooks{OnDuplicate: func(context.Context, idempotency.Key) { c.Error("absorbed") }}})
	testkit.Must(r.Middleware(c.produce)(newMessage("m1")))
	for _, payload := range []string{"other", "", "payload ", "Payload"} {
		out, err := r.Middleware(c.write)(message.NewMessage("m1", []byte(payload)))
		testkit.Require(c, out == nil && class(err) == classify.ClassInvalid && reason(err) == classify.ReasonKeyReused,
			"%q: %v, judged %s, %q: %v", payload, out, class(err), reason(err), err)
		if verdict := (*classify.Classifier)(nil).Classify(err); !strings.Contains(verdict.Description, "Give the message a key of its own") {
			c.Errorf("described as %q", verdict.Description)
		}
		testkit.Check(c, strings.Contains(err.Error(), `key "m1" of consumer "shop/billing"`), "%v", err)
	}
	c.rows(1, 1)
}

// Feature I7, promises P1, P2, P4: on a real router with the whole channel.
func (c *cell) reusedAside() {
	letters, outputs := c.passed(c.produce, asItIs, newMessage("m1"), message.NewMessage("m1", []byte("other")), newMessage("m2"))
	testkit.Check(c, slices.Equal(letters, []sheet{{"orders.invalid", "m1", "other", classify.ReasonKeyReused}}),
		"set aside: %+v", letters)
	testkit.Check(c, len(outputs) == 2 && outputs[0].Payload == "of m1" && outputs[1].Payload == "of m2", "published: %+v", outputs)
	c.rows(2, 2)
}
