package redrive_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
)

func sealedLetter(t testing.TB, s *seal.Sealer, id string, change ...func(*poison.Letter)) *message.Message {
	t.Helper()
	msg, _, err := inside.Poison.Seal(t.Context(), s, letter(id, "secret of "+id, change...))
	testkit.NoError(t, err)
	return msg
}

// wantAsPublished fails the test if a message that was redriven is not what was published first.
func wantAsPublished(t testing.TB, published fixture.Published) {
	t.Helper()
	got, want := poison.Read(published.Msg).Original, poison.Read(letter(published.Msg.UUID, "secret of "+published.Msg.UUID)).Original
	testkit.Check(t, bytes.Equal(got.Payload, want.Payload) && maps.Equal(got.Metadata, want.Metadata) &&
		published.Topic == "orders" && published.Msg.Metadata[poison.KeySealed] == "",
		"redriven to %s: %q %v", published.Topic, got.Payload, published.Msg.Metadata)
}

// Feature D14: a drain redrives sealed letters byte for byte, and leaves those that do not open as they are.
func TestDrain_sealed(t *testing.T) {
	db := sqliteFile.Create(t)()
	plain := storeOn(t, db)
	k1, _ := fixture.Sealer(t, "k1")
	k2, _ := fixture.Sealer(t, "k2", "k1")
	lost, _ := fixture.Sealer(t, "k3")
	damaged := sealedLetter(t, k1, "damaged")
	damaged.Payload = damaged.Payload[:len(damaged.Payload)-1]
	publish(t, plain, "orders.dlq", sealedLetter(t, k1, "old"), sealedLetter(t, lost, "lost"), damaged, letter("clear", "secret of clear"), sealedLetter(t, k2, "new"))
	store := testkit.Must(letters.NewStore(t.Context(), db, letters.Config{Service: "shop", Seal: k2}))
	before := list(t, store, letters.Filter{IDs: []string{"lost", "damaged"}})

	log, live := &testkit.Log{}, &outbox{}
	c := orders
	c.Logger = log
	report := drain(t, store, live, c)
	testkit.Check(t, report.Redriven == 3 && report.Sealed == 2 && report.Refused == 0 && report.Taken == 3 &&
		strings.Contains(report.SealError.Error(), `"k3"`), "%+v", report)
	for _, published := range live.All() {
		wantAsPublished(t, published)
	}
	ids := live.IDs()
	testkit.Check(t, len(ids) == 3 && ids["old"]+ids["clear"]+ids["new"] == 3, "redriven %v", ids)
	after := list(t, store, letters.Filter{})
	testkit.Require(t, len(after) == 2, "%d letters wait", len(after))
	for i, l := range after {
		testkit.Check(t, l.Seq == before[i].Seq && bytes.Equal(l.Original.Payload, before[i].Original.Payload) &&
			maps.Equal(l.Original.Metadata, before[i].Original.Metadata), "the letter %s changed", l.Original.UUID)
	}
	lines := log.Errors()
	testkit.Check(t, len(lines) == 2 && strings.Contains(lines[0].Err.Error(), `sealed with key "k3"`) &&
		strings.Contains(lines[1].Err.Error(), "does not open"), "log %v", lines)
	c.Seal, c.Logger = lost, nil
	report = drain(t, store, live, c)
	testkit.Check(t, report.Redriven == 1 && report.Sealed == 1, "with the keys of the drain: %+v", report)
}

// Feature D14: while the keys are unavailable a drain ends, a handler gives back, and letters wait as they did.
func TestSealUnavailable(t *testing.T) {
	s, keys := fixture.Sealer(t, "k1")
	store, live, park := newStore(t), &outbox{}, &outbox{}
	msg := sealedLetter(t, s, "1")
	publish(t, store, "orders.dlq", msg, sealedLetter(t, s, "2"))
	c := orders
	c.Seal = s
	h := newHandler(t, live, redrive.HandlerConfig{Rules: c.Rules, Park: park})
	keys.Unavailable.Store(true)
	report, err := redrive.Drain(t.Context(), store, live, c)
	testkit.Check(t, errors.Is(err, seal.ErrUnavailable) && report.Sealed+report.Failed+report.Redriven == 0,
		"%+v, %v", report, err)
	testkit.Is(t, h.Handle(msg), seal.ErrUnavailable)
	testkit.Equal(t, "published", len(live.All())+len(park.All()), 0)
	keys.Unavailable.Store(false)
	testkit.Equal(t, "redriven", drain(t, store, live, c).Redriven, 2)
	testkit.NoError(t, h.Handle(msg))
	testkit.Equal(t, "published", len(live.All()), 3)
}

// Feature D14: a drain of a topic redrives sealed letters, and parks those that do not open as they are.
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
	report := testkit.Must(c.drain(t.Context()))
	testkit.Require(t, report.Redriven == 2 && report.Sealed == len(bad) && report.Parked == 0, "%+v", report)
	for _, published := range live.All() {
		wantAsPublished(t, published)
	}
	for _, p := range park.All() {
		want := bad[p.Msg.UUID]
		testkit.Check(t, want != nil && bytes.Equal(p.Msg.Payload, want.Payload) &&
			maps.Equal(p.Msg.Metadata, want.Metadata) && p.Topic == "orders.dlq.parked",
			"parked %s in %s, as %q", p.Msg.UUID, p.Topic, p.Msg.Payload)
		delete(bad, p.Msg.UUID)
	}
	testkit.Check(t, len(bad) == 0 && errors.Is(reasons["lost"], seal.ErrUnknownKey) &&
		errors.Is(reasons["moved"], seal.ErrOtherLetter) && errors.Is(reasons["forged"], seal.ErrDamaged),
		"not parked: %v; reasons %v", bad, reasons)

	park = &outbox{}
	c = topicConfig(t, live, park, sealedLetter(t, s, "3"))
	c.Seal = s
	keys.Unavailable.Store(true)
	testkit.Is(t, testkit.Err(c.drain(t.Context())), seal.ErrUnavailable)
	testkit.Equal(t, "parked", len(park.All()), 0)
}
