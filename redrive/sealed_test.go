package redrive_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
	"github.com/watermill-spillway/spillway/settings"
)

func sealedLetter(t testing.TB, s *seal.Sealer, id string, change ...func(*poison.Letter)) *message.Message {
	t.Helper()
	msg, _, err := poison.Inside().Seal(t.Context(), s, letter(id, "secret of "+id, change...))
	testkit.NoError(t, err)
	return msg
}

// wantAsPublished fails the test if a message that was redriven is not what was published first.
func wantAsPublished(t testing.TB, published fixture.Published) {
	t.Helper()
	got, want := poison.Read(published.Msg).Original, poison.Read(letter(published.Msg.UUID, "secret of "+published.Msg.UUID)).Original
	if !bytes.Equal(got.Payload, want.Payload) || !maps.Equal(got.Metadata, want.Metadata) || published.Topic != "orders" || published.Msg.Metadata[poison.KeySealed] != "" {
		t.Errorf("redriven to %s: %q %v", published.Topic, got.Payload, published.Msg.Metadata)
	}
}

// Feature D14: a drain of a Store redrives sealed letters byte for byte, and goes on behind those that do not open,
// which stay as they are.
func TestDrain_sealed(t *testing.T) { onEach(t, testDrain_sealed) }

func testDrain_sealed(t *testing.T, on database) {
	db := on.Create(t)()
	plain := storeOn(t, db)
	k1, _ := fixture.Sealer(t, "k1")
	k2, _ := fixture.Sealer(t, "k2", "k1")
	lost, _ := fixture.Sealer(t, "k3")
	damaged := sealedLetter(t, k1, "damaged")
	damaged.Payload = damaged.Payload[:len(damaged.Payload)-1]
	publish(t, plain, "orders.dlq", sealedLetter(t, k1, "old"), sealedLetter(t, lost, "lost"), damaged, letter("clear", "secret of clear"), sealedLetter(t, k2, "new"))
	store := testkit.Must(letters.NewStore(t.Context(), db, settings.Shared{Service: "shop", Seal: k2}))
	before := list(t, store, letters.Filter{IDs: []string{"lost", "damaged"}})

	log, live := &testkit.Log{}, &outbox{}
	c := orders
	c.Logger = log
	report := drain(t, store, live, c)
	if report.Redriven != 3 || report.Sealed != 2 || report.Refused != 0 || report.Taken != 3 || !strings.Contains(report.SealError.Error(), `"k3"`) {
		t.Errorf("%+v", report)
	}
	for _, published := range live.All() {
		wantAsPublished(t, published)
	}
	if ids := live.IDs(); len(ids) != 3 || ids["old"]+ids["clear"]+ids["new"] != 3 {
		t.Errorf("redriven %v", ids)
	}
	after := list(t, store, letters.Filter{})
	if len(after) != 2 {
		t.Fatalf("%d letters wait", len(after))
	}
	for i, l := range after {
		if l.Seq != before[i].Seq || !bytes.Equal(l.Original.Payload, before[i].Original.Payload) || !maps.Equal(l.Original.Metadata, before[i].Original.Metadata) {
			t.Errorf("the letter %s changed", l.Original.UUID)
		}
	}
	if lines := log.Errors(); len(lines) != 2 || !strings.Contains(lines[0].Err.Error(), `sealed with key "k3"`) || !strings.Contains(lines[1].Err.Error(), "does not open") {
		t.Errorf("log %v", lines)
	}
	c.Seal, c.Logger = lost, nil
	if report = drain(t, store, live, c); report.Redriven != 1 || report.Sealed != 1 {
		t.Errorf("with the keys of the drain: %+v", report)
	}
}

// Feature D14: while the keys are away a drain ends with the error, and the letters wait as they did.
func TestDrain_sealAway(t *testing.T) {
	s, keys := fixture.Sealer(t, "k1")
	store := newStore(t)
	publish(t, store, "orders.dlq", sealedLetter(t, s, "1"), sealedLetter(t, s, "2"))
	keys.Away.Store(true)
	c, live := orders, &outbox{}
	c.Seal = s
	if report, err := redrive.Drain(t.Context(), store, live, c); !errors.Is(err, seal.ErrUnavailable) || report.Sealed+report.Failed+report.Redriven != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	keys.Away.Store(false)
	if report := drain(t, store, live, c); report.Redriven != 2 {
		t.Errorf("%+v", report)
	}
}

// Feature D14: a drain of a topic redrives sealed letters byte for byte. Forged, cut and moved envelopes, and those of
// lost keys, are parked as they are.
func TestDrainTopic_sealed(t *testing.T) {
	s, keys := fixture.Sealer(t, "k1")
	lost, _ := fixture.Sealer(t, "k3")
	bad := map[string]*message.Message{}
	for id, change := range map[string]func(*message.Message){
		"forged":    func(m *message.Message) { m.Payload = []byte("clear") },
		"truncated": func(m *message.Message) { m.Payload = m.Payload[:30] },
		"moved":     func(m *message.Message) { m.Payload = sealedLetter(t, s, "other").Payload },
		"counted":   func(m *message.Message) { m.Metadata[poison.KeyRedriveCount] = "1" },
	} {
		bad[id] = sealedLetter(t, s, id)
		change(bad[id])
	}
	bad["lost"] = sealedLetter(t, lost, "lost")
	waiting := []*message.Message{sealedLetter(t, s, "1"), letter("2", "secret of 2")}
	for _, msg := range bad {
		waiting = append(waiting, msg)
	}
	live, park := &outbox{}, &outbox{}
	c := topicConfig(t, live, park, waiting...)
	c.Seal = s
	reasons := map[string]error{}
	c.Hooks.OnParked = func(_ context.Context, l poison.Letter, why error) { reasons[l.Original.UUID] = why }
	report, err := c.drain(t.Context())
	if err != nil || report.Redriven != 2 || report.Sealed != len(bad) || report.Parked != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, published := range live.All() {
		wantAsPublished(t, published)
	}
	for _, p := range park.All() {
		want := bad[p.Msg.UUID]
		if want == nil || !bytes.Equal(p.Msg.Payload, want.Payload) || !maps.Equal(p.Msg.Metadata, want.Metadata) || p.Topic != "orders.dlq.parked" {
			t.Errorf("parked %s in %s, as %q", p.Msg.UUID, p.Topic, p.Msg.Payload)
		}
		delete(bad, p.Msg.UUID)
	}
	if len(bad) > 0 || !errors.Is(reasons["lost"], seal.ErrUnknownKey) || !errors.Is(reasons["moved"], seal.ErrOtherLetter) || !errors.Is(reasons["forged"], seal.ErrDamaged) {
		t.Errorf("not parked: %v; reasons %v", bad, reasons)
	}

	park = &outbox{}
	c = topicConfig(t, live, park, sealedLetter(t, s, "3"))
	c.Seal = s
	keys.Away.Store(true)
	if _, err := c.drain(t.Context()); !errors.Is(err, seal.ErrUnavailable) || len(park.All()) != 0 {
		t.Errorf("without keys: %v, %d parked", err, len(park.All()))
	}
}

// Feature D14: a handler of a dead-letter topic gives sealed letters back while the keys are away, and redrives them
// then.
func TestHandler_sealAway(t *testing.T) {
	s, keys := fixture.Sealer(t, "k1")
	live, park := &outbox{}, &outbox{}
	h := testkit.Must(redrive.NewHandler(live, redrive.HandlerConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Shared: settings.Shared{Seal: s}}, Park: park, MinWait: time.Nanosecond}))
	msg := sealedLetter(t, s, "1")
	keys.Away.Store(true)
	if err := h.Handle(msg); !errors.Is(err, seal.ErrUnavailable) || len(park.All())+len(live.All()) != 0 {
		t.Errorf("without keys: %v", err)
	}
	keys.Away.Store(false)
	if err := h.Handle(msg); err != nil || len(live.All()) != 1 {
		t.Errorf("%v, %d redriven", err, len(live.All()))
	}
}
