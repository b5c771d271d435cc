package idempotency_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
)

// Feature I3: outputs that the database does not take are an error of the message, which would else have its effects again
// and again; its lease is left.
func TestLeaseRecordRefused(t *testing.T) {
	b := leaseBases[2]
	_, db := b.ready(t)
	var most int
	if err := db.QueryRow(`SELECT @@max_allowed_packet`).Scan(&most); err != nil {
		t.Fatal(err)
	}
	r := newReceiver(t, b.store(db), idempotency.ReceiverConfig{Lease: time.Minute, PutBackAfter: time.Millisecond})
	_, err := r.Middleware(func(*message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("", make([]byte, most))}, nil
	})(newMessage("m1"))
	if class(err) != classify.ClassPermanent || aborted(err) {
		t.Fatal(err)
	}
	if _, err := b.store(db).Lease(t.Context(), idempotency.Entry{Key: leaseKey}, time.Minute); !errors.Is(err, idempotency.ErrHeld) {
		t.Fatal(err)
	}
}
