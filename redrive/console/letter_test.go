package console

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const crash = "example.com/shop/billing.Handle(0xc000010000)\n\t/home/ann/shop/billing/handle.go:17 +0x1d\n" +
	"github.com/ThreeDotsLabs/watermill/message.(*handler).handleMessage(0xc0)\n\t/go/pkg/mod/github.com/!three!dots!labs/watermill@v1.5.1/router.go:800 +0x1\n"

// Feature V11: the page of a letter tells its story: why, where, when, with what, and what became of it.
func TestLetter(t *testing.T) {
	b := newBench(t)
	first := fixture.Letter("id-7", `{"order":12345678901234567890,"card":{"password":"hunter2"}}`, func(l *poison.Letter) {
		l.Failure.Stack = crash
		l.Origin.Partition, l.Origin.Offset, l.Origin.Key = "3", "4711", []byte("key-of-ann")
		l.Origin.Timestamp = fixture.FailedAt.Add(-time.Minute)
	})
	again := fixture.Letter("id-7", `{"order":1}`, fixture.RedrivenTimes(1), func(l *poison.Letter) {
		l.Redrive.By, l.Redrive.ID, l.Redrive.At = "bob", "drain-1", fixture.FailedAt
		l.Failure.History = append(l.Failure.History, classify.Attempt{At: fixture.FailedAt.Add(time.Hour), Class: classify.ClassTransient, Error: "timed out"})
	})
	fixture.Publish(t, b.store, "orders.dlq", first, again)
	taken := testkit.Must(fixture.Take(t.Context(), b.store, letters.Filter{}, time.Hour, 1))
	act := letters.Act{By: "bob", Reason: "INC-7 is repaired", RedriveID: "drain-1"}
	testkit.NoError(t, fixture.Mark(t.Context(), b.store, taken[0], letters.StatusRedriven, act))
	p := b.get("/letters/1")
	p.want(t, http.StatusOK, "Letter 1", "no_such_customer", "customer id-7 is unknown", "12345678901234567890", privacy.Mark, "4711", "key-of-ann",
		"example.com/shop/billing.Handle", "attempt failed (permanent)", "INC-7 is repaired", "blue", `href="../letters/2"`,
		"after 60 seconds", "redrive show 1 --json")
	p.wantNot(t, "hunter2")
	b.get("/letters/2").want(t, http.StatusOK, "once, by bob", "timed out", "after 1 hour", `href="../letters/1"`, "Download the exact bytes")
	b.get("/letters/1?view=hex").want(t, http.StatusOK, "00000000  7b 22 6f 72")
	b.get("/letters/1?view=nonsense").want(t, http.StatusOK, `&#34;order&#34;: 12345678901234567890`)
	for _, path := range []string{"/letters/99", "/letters/0", "/letters/x"} {
		b.get(path).want(t, http.StatusNotFound)
	}
}

// Feature V11: who may look without payload sees no payload, metadata or record key, on the page and in the export.
func TestLetterWithoutPayload(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("id-7", `{"secret":"of-ann"}`, func(l *poison.Letter) {
		l.Origin.Key = []byte("key-of-ann")
		l.Original.Metadata.Set("customer", "name-of-ann")
	}))
	for _, path := range []string{"/letters/1", "/letters/1?view=text", "/api/v1/letters/1"} {
		p := b.get(path, as(LookWithoutPayload)).want(t, http.StatusOK, "no_such_customer")
		p.wantNot(t, "of-ann", "6f 66")
	}
	b.get("/letters/1", as(LookWithoutPayload)).want(t, http.StatusOK, "You may not see the payload", "customer", "hidden")
}

// Feature V11: the export of a letter is masked as its page is, in each field.
func TestExportIsMasked(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq password=hunter2", fixture.Letter("password=hunter2", `{"password":"hunter2"}`, func(l *poison.Letter) {
		l.Origin.Topic, l.Origin.Handler = "password=hunter2", "password=hunter2"
		l.Failure.Reason, l.Failure.Type, l.Failure.Description, l.Failure.Stack = "password=hunter2", "password=hunter2", "password=hunter2", "password=hunter2"
		l.Original.Metadata.Set("note", "password=hunter2")
	}))
	for _, path := range []string{"/letters/1", "/api/v1/letters/1"} {
		p := b.get(path).want(t, http.StatusOK, "password="+privacy.Mark)
		p.wantNot(t, "hunter2")
	}
}

// Feature V11: the bytes of a payload leave as they are. What is masked on pages leaves with a reason, on record.
func TestDownload(t *testing.T) {
	b := newBench(t)
	noise := make([]byte, 3<<20)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(noise)
	secret := `{"password":"hunter2"}`
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("id-1", "\x00<script>\xff"), fixture.Letter("id-2", secret), fixture.Letter("id-3", string(noise)),
		fixture.Letter("id-4", ""))
	p := b.get("/api/v1/letters/1/payload", as(Look)).want(t, http.StatusOK)
	testkit.Check(t, p.body == "\x00<script>\xff" && p.Header.Get("Content-Type") == "application/octet-stream" &&
		p.Header.Get("X-Content-Type-Options") == "nosniff" &&
		p.Header.Get("Content-Disposition") == `attachment; filename="letter-1.bin"`, "%q with %v", p.body, p.Header)
	b.get("/api/v1/letters/2/payload", as(Operate)).want(t, http.StatusForbidden)
	b.post("/letters/2/payload", reason, as(Look)).want(t, http.StatusForbidden)
	b.post("/letters/2/payload", url.Values{}, as(Operate)).want(t, http.StatusBadRequest)
	p = b.post("/letters/2/payload", reason, as(Operate))
	testkit.Equal(t, "the payload", p.want(t, http.StatusOK).body, secret)
	events, err := b.store.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventShown}})
	testkit.Check(t, err == nil && len(events) == 1 && events[0].By == "ann" && events[0].Reason == "INC-7" &&
		events[0].Seq == 2, "%+v, %v", events, err)
	p = b.post("/letters/3/payload", reason)
	testkit.Check(t, p.body == string(noise), "%d bytes come back of %d", len(p.body), len(noise))
	b.get("/letters/4").want(t, http.StatusOK, "The payload is empty.")
	b.get("/api/v1/letters/4/payload").want(t, http.StatusOK)
}

// Feature V11: the page of a letter is small, whatever is in the letter, and says what it leaves out.
func TestLetterIsBounded(t *testing.T) {
	b := newBench(t)
	large := fixture.Letter("large", `{"items":[`+strings.Repeat(`{"id":123,"name":"x"},`, 500_000)+`{}]}`)
	wide := fixture.Letter("wide", "{}", func(l *poison.Letter) {
		for i := range 10_000 {
			l.Original.Metadata.Set(fmt.Sprintf("key-%05d", i), fmt.Sprintf("value %d", i))
		}
		l.Original.Metadata.Set("long", strings.Repeat("v", 100_000))
		l.Failure.Description, l.Failure.Stack = strings.Repeat("d", 10_000), strings.Repeat("frame\n", 1000)
	})
	noise := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(noise)
	fixture.Publish(t, b.store, "orders.dlq", large, wide, fixture.Letter("noise", string(noise)))
	for path, say := range map[string]string{
		"/letters/1": "Only the first 32,768 bytes are shown", "/letters/1?view=text": "Only the first 32,768 bytes are shown", "/letters/2": "of 10,002 keys are shown",
		"/letters/3": "Only the first 8,192 bytes are shown", "/letters/3?view=text": "Only the first",
	} {
		p := b.get(path).want(t, http.StatusOK, say)
		testkit.Check(t, p.sent <= 60<<10, "%s: %d bytes are sent", path, p.sent)
	}
	p := b.get("/api/v1/letters/2")
	var e operate.WholeData
	err := json.Unmarshal([]byte(p.body), &e)
	testkit.Check(t, err == nil && len(e.Metadata) == 10_002 && e.Payload != nil && *e.Payload == "{}",
		"%d keys, %v", len(e.Metadata), err)
}
