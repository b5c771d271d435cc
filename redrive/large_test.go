package redrive_test

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

// Feature D6, V9: letters of 10 MiB are stored, listed, shown and redriven byte for byte, and never many of them are in
// memory: a page and a drain have 32 MiB, and a list of heads reads no body.
func TestDrain_largeLetters(t *testing.T) {
	for _, on := range []fixture.Database{fixture.SQLite, fixture.Postgres} {
		t.Run(on.Name, func(t *testing.T) { testDrain_largeLetters(t, on) }) // one after the other: memory is measured
	}
}

func testDrain_largeLetters(t *testing.T, on fixture.Database) {
	const n, size, most = 13, 10 << 20, 100 << 20
	store := testkit.Must(letters.NewStore(t.Context(), on.Create(t)(), settings.Shared{Service: "shop"}))
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
	if err != nil || len(heads) != n || heads[0].Size < size {
		t.Fatalf("%+v, %v", heads, err)
	}
	var ended runtime.MemStats
	runtime.ReadMemStats(&ended)
	if took := ended.TotalAlloc - begun.TotalAlloc; took > 4<<20 {
		t.Errorf("a list of heads allocates %d bytes", took)
	}
	if page, err := store.List(t.Context(), letters.Filter{}); err != nil || len(page) != 3 {
		t.Errorf("a page has %d letters, %v", len(page), err)
	}
	if l, err := store.Get(t.Context(), heads[2].Seq); err != nil || !bytes.Equal(l.Original.Payload, payload) {
		t.Errorf("a letter is not shown as it was: %v", err)
	}
	var mu sync.Mutex
	var highest uint64
	redriven := 0
	out := publisherFunc(func(_ string, messages ...*message.Message) error {
		mu.Lock()
		defer mu.Unlock()
		for _, msg := range messages {
			if bytes.Equal(msg.Payload, payload) {
				redriven++
			}
		}
		highest = max(highest, live())
		return nil
	})
	report, err := redrive.Drain(t.Context(), store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Concurrency: 4}})
	if err != nil || report.Redriven != n || redriven != n {
		t.Errorf("%+v, %d as they were, %v", report, redriven, err)
	}
	if highest > before+most {
		t.Errorf("a drain holds %d bytes at once", highest-before)
	}
}

// live is how many bytes are in use. The second collection takes what sync.Pool kept at the first: a driver's read
// buffers.
func live() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
