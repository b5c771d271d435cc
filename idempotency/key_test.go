package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
)

// Feature I5: what is a key's source, and that an empty key is a clear error of the message, never one shared key.
func TestKeys(t *testing.T) {
	full := message.NewMessage("id", []byte("abc"))
	full.Metadata.Set("idempotency-key", "k1")
	bare := &message.Message{}
	for name, c := range map[string]struct {
		key    idempotency.KeyFunc
		want   string
		reason string
		text   string
	}{
		"id":       {idempotency.ByID(), "id", "", "no id"},
		"metadata": {idempotency.ByMetadata("idempotency-key"), "k1", classify.ReasonMissingMetadata, `no metadata "idempotency-key"`},
		"payload":  {idempotency.ByPayloadHash(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "", "no payload"},
		"empty":    {func(*message.Message) (string, error) { return "", nil }, "", "", "empty key"},
	} {
		t.Run(name, func(t *testing.T) {
			db := openWithEffects(t)
			var applied idempotency.Key
			h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{
				Key:       c.key,
				OnApplied: func(_ context.Context, k idempotency.Key) { applied = k },
			}).Middleware(effect)
			if _, err := h(full); (err == nil) != (c.want != "") || applied.ID != c.want {
				t.Fatalf("key %q, error %v", applied.ID, err)
			}
			before := count(t, db, "effects")
			_, err := h(bare)
			if class(err) != classify.ClassInvalid || reason(err) != c.reason || !strings.Contains(err.Error(), c.text) {
				t.Fatal(err)
			}
			if count(t, db, "effects") != before {
				t.Fatal("the handler ran")
			}
		})
	}
}

// Feature I5, conventions: a key function's own error keeps its class, and its panic is a permanent error.
func TestKeyFails(t *testing.T) {
	cause := classify.Transient(errors.New("lookup failed"))
	for _, c := range []struct {
		key  idempotency.KeyFunc
		want classify.Class
	}{
		{func(*message.Message) (string, error) { return "k", cause }, classify.ClassTransient},
		{func(*message.Message) (string, error) { panic("boom") }, classify.ClassPermanent},
	} {
		db := openWithEffects(t)
		h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{Key: c.key}).Middleware(effect)
		if _, err := h(newMessage("m1")); class(err) != c.want || !strings.Contains(err.Error(), `key of message "m1"`) {
			t.Fatal(err)
		}
		wantRows(t, db, 0, 0)
	}
}
