package idempotency_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature I3, promise P1: outputs that are larger than max_allowed_packet are a refusal for size, at once. No attempt,
// no stage and no other connection can record them.
func TestOutputsLargerThanPacket(t *testing.T) {
	db := mysqltest.Open(t, mysqltest.Database(t))
	var packet int
	testkit.NoError(t, db.QueryRow(`SELECT @@max_allowed_packet`).Scan(&packet))
	r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
	for what, size := range map[string]int{"as large as it": packet, "a bit smaller": packet - 40, "three times as large": 3 * packet, "larger than the driver sends": 65 << 20} {
		_, err := r.Middleware(func(*message.Message) ([]*message.Message, error) {
			return []*message.Message{message.NewMessage("out", make([]byte, size))}, nil
		})(newMessage("of " + what))
		if v := (*classify.Classifier)(nil).Classify(err); v.Class != classify.ClassPermanent || !errors.Is(err, classify.ErrTooLarge) || aborted(err) {
			t.Errorf("%s: %s, %v", what, v.Class, err)
		}
	}
	// A driver that writes values into the statement doubles these bytes.
	escaping := newReceiver(t, storeOn(mysqltest.Open(t, mysqltest.With(mysqltest.Database(t), "interpolateParams=true"))), idempotency.ReceiverConfig{})
	for name, r := range map[string]*idempotency.Receiver{"prepared": r, "in the text": escaping} {
		_, err := r.Middleware(func(*message.Message) ([]*message.Message, error) {
			return []*message.Message{message.NewMessage("out", bytes.Repeat([]byte("'"), packet*3/4))}, nil
		})(newMessage("of three quarters, " + name))
		if err != nil {
			t.Errorf("%s: outputs of three quarters of the packet: %v", name, err)
		}
	}
}
