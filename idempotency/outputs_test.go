package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
)

type ctxKey struct{}

// hostile are outputs of all shapes; the id of the last is empty.
func hostile() []*message.Message {
	bad := string([]byte{0xff, 0, 0xc3, 0x28, '"', '\n'})
	first := message.NewMessage(bad, []byte(bad))
	first.Metadata = message.Metadata{bad: bad, "": "", "k": strings.Repeat("v", 70_000)}
	return []*message.Message{first, {UUID: "nil metadata"}, message.NewMessage("empty", message.Payload{}), message.NewMessage("", nil)}
}

// Feature I4, promise P7: a duplicate returns what the first delivery returned, byte for byte and with the same ids.
func TestDuplicateReturnsOutputs(t *testing.T) {
	{
		db := openWithEffects(t)
		h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{}).Middleware(
			func(*message.Message) ([]*message.Message, error) { return hostile(), nil })
		first, err := h(newMessage("m1"))
		if err != nil || len(first) != 4 {
			t.Fatal(first, err)
		}
		msg := newMessage("m1")
		msg.SetContext(context.WithValue(context.Background(), ctxKey{}, "second"))
		again, err := h(msg)
		if err != nil || len(again) != 4 {
			t.Fatal(again, err)
		}
		seen := map[string]bool{}
		for i, want := range hostile() {
			for _, got := range []*message.Message{first[i], again[i]} {
				if !bytes.Equal(got.Payload, want.Payload) || (got.Payload == nil) != (want.Payload == nil) ||
					!maps.Equal(got.Metadata, want.Metadata) || got.Metadata == nil {
					t.Errorf("output %d: got %q %q, want %q %q", i, got.Metadata, got.Payload, want.Metadata, want.Payload)
				}
				if want.UUID != "" && got.UUID != want.UUID {
					t.Errorf("output %d: id %q, want %q", i, got.UUID, want.UUID)
				}
			}
			if first[i].UUID != again[i].UUID || first[i].UUID == "" || seen[first[i].UUID] {
				t.Errorf("output %d: id %q, then %q", i, first[i].UUID, again[i].UUID)
			}
			seen[first[i].UUID] = true
			if again[i].Context().Value(ctxKey{}) != "second" {
				t.Errorf("output %d does not carry the message's context", i)
			}
		}
	}
}

// Feature I4, promise P7: derived ids are the same when the handler runs again after a rollback, and differ by index, consumer
// and key, however these are cut.
func TestDerivedIDs(t *testing.T) {
	db := openWithEffects(t)
	ids := map[string]string{}
	for _, key := range []idempotency.Key{{Consumer: "a", ID: "bc"}, {Consumer: "ab", ID: "c"}, {Consumer: "a", ID: "b"}} {
		var attempts []string
		fail := true
		h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{Consumer: key.Consumer}).Middleware(
			func(*message.Message) ([]*message.Message, error) {
				if fail {
					return nil, errors.New("boom")
				}
				return []*message.Message{newMessage(""), newMessage("")}, nil
			})
		for range 2 {
			_, _ = h(newMessage(key.ID))
			fail = false
			out, err := h(newMessage(key.ID))
			if err != nil || len(out) != 2 {
				t.Fatal(out, err)
			}
			attempts = append(attempts, out[0].UUID+" "+out[1].UUID)
			if _, err := db.Exec(`DELETE FROM spillway_keys`); err != nil { // as if the commit had been lost
				t.Fatal(err)
			}
		}
		if attempts[0] != attempts[1] {
			t.Fatalf("ids changed: %v", attempts)
		}
		for _, id := range strings.Fields(attempts[0]) {
			if len(id) != 36 || id[14] != '8' {
				t.Errorf("%q is no UUID of version 8", id)
			}
			if other, taken := ids[id]; taken {
				t.Errorf("id of %v is that of %s", key, other)
			}
			ids[id] = key.Consumer + "/" + key.ID
		}
	}
}

// Promise P2: a handler may return its source message; it is copied, and the source stays as it was.
func TestSourceAsOutput(t *testing.T) {
	db := openWithEffects(t)
	h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{}).Middleware(
		func(msg *message.Message) ([]*message.Message, error) { return []*message.Message{msg, msg}, nil })
	msg := newMessage("m1")
	out, err := h(msg)
	if err != nil || len(out) != 2 || out[0] == msg || out[0].UUID == out[1].UUID || msg.UUID != "m1" {
		t.Fatal(out, err, msg.UUID)
	}
	out[0].Metadata.Set("added", "later")
	if len(msg.Metadata) != 0 || len(out[1].Metadata) != 0 {
		t.Fatal("metadata is shared")
	}
}

// Feature I4, promise P7: an output keeps the id that the handler set, and its duplicates have it too. An id that an earlier
// output has is replaced: a consumer would take the two for one message.
func TestOwnOutputIDs(t *testing.T) {
	db := openWithEffects(t)
	h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{}).Middleware(
		func(msg *message.Message) ([]*message.Message, error) {
			return []*message.Message{newMessage("invoice-42"), newMessage("invoice-42"), msg, newMessage("")}, nil
		})
	var first []string
	for range 2 {
		out, err := h(newMessage("m1"))
		if err != nil || len(out) != 4 {
			t.Fatal(out, err)
		}
		ids := []string{out[0].UUID, out[1].UUID, out[2].UUID, out[3].UUID}
		if ids[0] != "invoice-42" || ids[2] != "m1" || len(ids[1]) != 36 || len(ids[3]) != 36 || ids[1] == ids[3] {
			t.Errorf("ids %q", ids)
		}
		if first == nil {
			first = ids
		}
		if !slices.Equal(ids, first) {
			t.Errorf("ids %q, then %q", first, ids)
		}
	}
}

// Promise P7: an output made with the handler's context does not carry the ended transaction on to the next handler.
func TestOutputsLeaveTransaction(t *testing.T) {
	db := openWithEffects(t)
	h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{}).Middleware(
		func(msg *message.Message) ([]*message.Message, error) {
			ctx := context.WithValue(msg.Context(), ctxKey{}, "kept")
			return []*message.Message{message.NewMessageWithContext(ctx, "out", nil)}, nil
		})
	out, err := h(newMessage("m1"))
	if err != nil || idempotency.Tx(out[0].Context()) != nil || out[0].Context().Value(ctxKey{}) != "kept" {
		t.Fatal(out, err)
	}
}

// Promise P7: a nil output is an error before anything is committed.
func TestNilOutput(t *testing.T) {
	db := openWithEffects(t)
	h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{}).Middleware(
		func(msg *message.Message) ([]*message.Message, error) {
			_, err := effect(msg)
			return []*message.Message{newMessage("out"), nil}, err
		})
	if _, err := h(newMessage("m1")); class(err) != classify.ClassPermanent || !strings.Contains(err.Error(), "output 2 of 2 is nil") {
		t.Fatal(err)
	}
	wantRows(t, db, 0, 0)
}

// Feature I4: recorded outputs that cannot be read are an error, never a silent absorption.
func TestDamagedRecord(t *testing.T) {
	db := openWithEffects(t)
	h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{}).Middleware(
		func(*message.Message) ([]*message.Message, error) { return hostile(), nil })
	if _, err := h(newMessage("m1")); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`UPDATE spillway_keys SET outputs = x'02'`); err != nil {
		t.Fatal(err)
	}
	if _, err := h(newMessage("m1")); class(err) != classify.ClassPermanent {
		t.Fatal(err)
	}
}
