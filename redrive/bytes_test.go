package redrive_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Promise P2: any bytes survive, in the store and on the way back.
func TestDrain_hostileBytes(t *testing.T) { onEach(t, testDrain_hostileBytes) }

func testDrain_hostileBytes(t *testing.T, on database) {
	store := on.NewStore(t)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	many := message.Metadata{}
	for i := range 10_000 {
		many[fmt.Sprintf("key-%d\x00\xff", i)] = string(all[i%200:])
	}
	messages := map[string]*message.Message{
		"bytes":   {UUID: string(all), Payload: all, Metadata: message.Metadata{string(all): string(all), "": "", "empty": ""}},
		"nothing": {UUID: "nothing"},
		"empty":   {UUID: "empty", Payload: []byte{}},
		"large":   {UUID: "large", Payload: bytes.Repeat(all, 2<<20/256), Metadata: message.Metadata{"a": "b"}},
		"many":    {UUID: "many", Payload: []byte("x"), Metadata: many},
	}
	topic := "dead\x00\xff"
	for _, msg := range messages {
		publish(t, store, topic, poison.Letter{
			Original: msg, Origin: poison.Origin{Topic: "or\xffders\x00", Handler: "h\xff", Key: all},
			Failure: poison.Failure{Class: classify.ClassPermanent},
		}.Encode())
	}
	publish(t, store, "", message.NewMessage("no topic", nil))
	wantCount(t, store, letters.Filter{DeadLetterTopics: []string{topic}, Topics: []string{"or\xffders\x00"}, Handlers: []string{"h\xff"}}, len(messages))
	wantCount(t, store, letters.Filter{IDs: []string{string(all)}}, 1)

	out := &outbox{}
	report := drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"or\xffders\x00"}}})
	testkit.Require(t, report.Redriven == len(messages) && report.Refused == 1, "%+v", report)
	for _, p := range out.All() {
		want := messages[p.Msg.UUID]
		if want == nil {
			want = messages["bytes"]
		}
		got := testkit.Must(poison.Decode(withClass(p.Msg)))
		testkit.Check(t, p.Msg.UUID == want.UUID && bytes.Equal(p.Msg.Payload, want.Payload) &&
			bytes.Equal(got.Origin.Key, all), "%.10q changed", p.Msg.UUID)
		testkit.Check(t, maps.Equal(got.Original.Metadata, want.Metadata), "metadata of %.10q changed", p.Msg.UUID)
	}
}

// Promise P4: a row that is damaged is shown as such, and those behind it come back.
func TestDrain_damagedRow(t *testing.T) {
	db := sqliteFile.Create(t)()
	s := storeOn(t, db)
	publish(t, s, "orders.dlq", several(3)...)
	testkit.Must(db.Exec(`UPDATE spillway_letter_bodies SET metadata = payload WHERE body = 1`))
	report, err := redrive.Drain(t.Context(), s, &outbox{}, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}})
	testkit.Check(t, err == nil && report.Redriven == 2 && report.Refused == 1, "%+v, %v", report, err)
	got := list(t, s, letters.Filter{})
	testkit.Check(t, len(got) == 1 && strings.Contains(got[0].Letter.Failure.Description, "damaged"), "%+v", got)
}

// Feature V1, D6: a message comes back without the history that makes it too large. Too large ones end no drain.
func TestDrain_tooLarge(t *testing.T) {
	s := sqliteFile.NewStore(t)
	history := func(l *poison.Letter) {
		l.Failure.History = []classify.Attempt{{At: time.Unix(1, 0), Class: classify.ClassTransient, Error: "a long story"}}
	}
	for i := range 5 {
		publish(t, s, "orders.dlq", letter(fmt.Sprint("huge-", i), "x"))
	}
	publish(t, s, "orders.dlq", letter("fits", "x", history))
	own := errors.New("body exceeds the quota")
	classifier := testkit.Must(classify.New(classify.Config{Rules: []classify.Rule{classify.Is(own, classify.Verdict{TooLarge: true})}}))
	refusals := 0
	live := &outbox{Before: func(_ string, msg *message.Message) error {
		if strings.HasPrefix(msg.UUID, "huge") || msg.Metadata[poison.KeyAttemptHistory] != "" {
			if refusals++; refusals%2 == 0 {
				return errors.New("message was too large")
			}
			return fmt.Errorf("publish: %w", own)
		}
		return nil
	}}
	report, err := redrive.Drain(t.Context(), s, live, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, PublishAttempts: 2, Shared: observe.Shared{Classifier: classifier}}})
	testkit.Check(t, err == nil && report.Redriven == 1 && report.Failed == 5, "%+v, %v", report, err)
}

// Feature V1, V3: what fills its topic comes back with its count alone, and goes nowhere else without its origin.
func TestDrain_leavesNoRoom(t *testing.T) {
	live := &outbox{Before: func(_ string, msg *message.Message) error {
		for key := range msg.Metadata {
			if key != poison.KeyRedriveCount && key != "tenant" {
				return errors.New("nats: maximum payload exceeded")
			}
		}
		return nil
	}}
	on := fixture.SQLite
	for topic, redriven := range map[string]int{"orders": 1, "orders.retry": 0} {
		s := on.NewStore(t)
		publish(t, s, "orders.dlq", letter("full", "x"))
		entry := func(poison.Letter) string { return topic }
		report := testkit.Must(redrive.Drain(t.Context(), s, live, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, PublishAttempts: 1, ReentryTopic: entry}}))
		testkit.Check(t, report.Redriven == redriven && report.Failed == 1-redriven, "into %q: %+v", topic, report)
	}
	all := live.All()
	testkit.Check(t, len(all) == 1 && all[0].Msg.Metadata[poison.KeyRedriveCount] == "1", "published %v", all)
}

// Feature D6, V9: letters of 10 MiB come back byte for byte, and few of them are in memory at once: 32 MiB.
func TestDrain_largeLetters(t *testing.T) {
	const n, size, most = 20, 10 << 20, 165 << 20 // all letters have 200 MiB
	store := postgresSchema.NewStore(t)
	payload := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(payload)
	for i := range n {
		l := fixture.Letter(string(rune('a'+i)), "")
		l.Payload = payload
		publish(t, store, "orders.dlq", l)
	}
	before := live()
	var begun runtime.MemStats
	runtime.ReadMemStats(&begun)
	heads, err := store.Heads(t.Context(), letters.Filter{})
	testkit.Require(t, err == nil && len(heads) == n && heads[0].Size >= size, "%+v, %v", heads, err)
	var ended runtime.MemStats
	runtime.ReadMemStats(&ended)
	took := ended.TotalAlloc - begun.TotalAlloc
	testkit.Check(t, took <= 4<<20, "a list of heads allocates %d bytes", took)
	testkit.Equal(t, "a page has letters", len(testkit.Must(store.List(t.Context(), letters.Filter{}))), 3)
	l, err := store.Get(t.Context(), heads[2].Seq)
	testkit.Check(t, err == nil && bytes.Equal(l.Original.Payload, payload), "a letter is not shown as it was: %v", err)
	var mu sync.Mutex
	var highest uint64
	redriven := 0
	out := publisherFunc(func(_ string, messages ...*message.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if bytes.Equal(messages[0].Payload, payload) {
			redriven++
		}
		highest = max(highest, live())
		return nil
	})
	report := testkit.Must(redrive.Drain(t.Context(), store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Concurrency: 4}}))
	testkit.Check(t, report.Redriven == n && redriven == n, "%+v, %d as they were", report, redriven)
	testkit.Check(t, highest <= before+most, "a drain holds %d bytes at once", highest-before)
}

// live is how many bytes are in use. The second collection takes the read buffers that sync.Pool kept.
func live() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
