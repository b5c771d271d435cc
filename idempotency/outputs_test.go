package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

type ctxKey struct{}

// hostile are outputs of all shapes; the id of the last is empty.
func hostile() []*message.Message {
	bad := string([]byte{0xff, 0, 0xc3, 0x28, '"', '\n'})
	first := message.NewMessage(bad, []byte(bad))
	first.Metadata = message.Metadata{bad: bad, "": "", "k": strings.Repeat("v", 70_000)}
	return []*message.Message{first, {UUID: "nil metadata"}, message.NewMessage("empty", message.Payload{}), message.NewMessage("", nil)}
}

// Promises P2, P7, in both modes: a handler may return its source message, which is copied and stays as it was. Outputs
// carry neither transaction nor lease, and live as long as their source.
func TestOutputsLeaveClaim(t *testing.T) {
	db := newCell(t, onSQLite).db
	for _, lease := range []time.Duration{0, time.Minute} {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), ctxKey{}, "kept"))
		defer cancel()
		msg := message.NewMessageWithContext(ctx, fmt.Sprint("m", lease), nil)
		r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{Lease: lease})
		out, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			return []*message.Message{msg, msg, message.NewMessageWithContext(msg.Context(), "", nil)}, nil
		})(msg)
		testkit.Require(t, err == nil && len(out) == 3 && out[0] != msg && out[0].UUID != out[1].UUID &&
			msg.UUID == fmt.Sprint("m", lease), "%v %v %v", out, err, msg.UUID)
		out[0].Metadata.Set("added", "later")
		testkit.Require(t, len(msg.Metadata) == 0 && len(out[1].Metadata) == 0, "metadata is shared")
		for _, m := range out {
			testkit.Check(t, chain.ClaimOf(m.Context()) == nil && m.Context().Err() == nil &&
				m.Context().Value(ctxKey{}) == "kept", "an output carries the claim, or another context")
		}
		cancel()
		testkit.Check(t, out[2].Context().Err() != nil, "an output outlives its source")
	}
}

// Feature I4: recorded outputs that cannot be read are an error, never a silent absorption.
func TestDamagedRecord(t *testing.T) {
	db := newCell(t, onSQLite).db
	h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{}).Middleware(
		func(*message.Message) ([]*message.Message, error) { return hostile(), nil })
	testkit.Must(h(newMessage("m1")))
	testkit.Must(db.Exec(`UPDATE spillway_keys SET outputs = x'02'`))
	_, err := h(newMessage("m1"))
	testkit.Require(t, class(err) == classify.ClassPermanent, "%v", err)
}

// Feature I3, promise P1: outputs that are larger than max_allowed_packet are a refusal for size, at once. No attempt,
// no stage and no other connection can record them.
func TestOutputsLargerThanPacket(t *testing.T) {
	t.Parallel()
	db := mysqltest.Open(t, mysqltest.Database(t))
	var packet int
	testkit.NoError(t, db.QueryRow(`SELECT @@max_allowed_packet`).Scan(&packet))
	r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
	for what, size := range map[string]int{
		"as large as it": packet, "a bit smaller": packet - 40, "larger than the driver sends": 65 << 20,
	} {
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
			return []*message.Message{message.NewMessage("out", bytes.Repeat([]byte("'"), packet*7/10))}, nil
		})(newMessage("of seven tenths, " + name))
		testkit.Check(t, err == nil, "%s: outputs of seven tenths of the packet: %v", name, err)
	}
}
