package api_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/api"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/console"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is a console on a database of its own. Test-Role and Test-Name of a request say who asks.
type desk struct {
	t         testing.TB
	db        *sql.DB
	store     *letters.Store
	campaigns *campaigns.Campaigns
	console   http.Handler
}

func newDesk(t testing.TB, change ...func(*console.Config)) *desk {
	t.Helper()
	return deskOn(t, fixture.SQLite.Create(t)(), change...)
}

// holding publishes letters.
func (d *desk) holding(some ...*message.Message) *desk {
	fixture.Publish(d.t, d.store, "orders.dlq", some...)
	return d
}

// deskOn is an instance on a database.
func deskOn(t testing.TB, db *sql.DB, change ...func(*console.Config)) *desk {
	t.Helper()
	d := &desk{t: t, db: db, store: fixture.StoreOn(t, db)}
	d.campaigns = testkit.Must(campaigns.New(t.Context(), d.store, campaigns.Config{Allow: []string{"orders", "refunds"}}))
	config := console.Config{Campaigns: d.campaigns, Access: access}
	for _, f := range change {
		f(&config)
	}
	d.console = testkit.Must(console.New(config))
	return d
}

func access(r *http.Request) (console.Person, error) {
	who := console.Person{Name: "ann", Role: console.Approve}
	if name := r.Header.Get("Test-Name"); name != "" {
		who.Name = name
	}
	if r.Header.Get("Test-Role") == "error" {
		return who, errors.New("the directory of people is unavailable")
	}
	for i, name := range operate.RightNames {
		if r.Header.Get("Test-Role") == name {
			who.Role = console.Role(i)
		}
	}
	return who, nil
}

// reply is an answer of the API.
type reply struct {
	*http.Response
	body string
}

func as(right operate.Right) func(*http.Request) { return with("Test-Role", right.String()) }

func with(header, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(header, value) }
}

func (d *desk) get(path string, change ...func(*http.Request)) reply {
	return d.send(httptest.NewRequest(http.MethodGet, api.Prefix+path, nil), change...)
}

// post sends a body, as JSON if it is no text, with a new key.
func (d *desk) post(path string, body any, change ...func(*http.Request)) reply {
	text, is := body.(string)
	if !is {
		text = string(testkit.Must(json.Marshal(body)))
	}
	r := httptest.NewRequest(http.MethodPost, api.Prefix+path, strings.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", watermill.NewUUID())
	return d.send(r, change...)
}

func (d *desk) send(r *http.Request, change ...func(*http.Request)) reply {
	d.t.Helper()
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	d.console.ServeHTTP(w, r)
	return reply{w.Result(), w.Body.String()}
}

// want fails the test unless the answer has the status and all of the texts.
func (r reply) want(t testing.TB, status int, texts ...string) reply {
	t.Helper()
	testkit.Require(t, r.StatusCode == status, "status %d, want %d: %s", r.StatusCode, status, r.body)
	for _, text := range texts {
		testkit.Check(t, strings.Contains(r.body, text), "the answer lacks %q: %s", text, r.body)
	}
	if status >= 400 {
		var p operate.Problem
		testkit.Check(t, r.Header.Get("Content-Type") == "application/problem+json" &&
			json.Unmarshal([]byte(r.body), &p) == nil && p.Status == status && p.Type != "" && p.Title != "" &&
			p.Detail != "", "no problem details: %s %s", r.Header.Get("Content-Type"), r.body)
	}
	return r
}

// read reads an answer, which has no field that the value lacks.
func read[T any](t testing.TB, r reply) (v T) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader([]byte(r.body)))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&v)
	testkit.Require(t, (err == nil || errors.Is(err, io.EOF)), "%v: %s", err, r.body)
	return v
}

// masking hides cards in payloads, beside credentials.
func masking(c *console.Config) {
	c.Privacy = testkit.Must(privacy.New(privacy.Rules{Payload: []string{"$.card"}}))
}

// secrets puts a credential and a value of the message into each text of a letter.
func secrets(l *poison.Letter) {
	l.Original.Metadata.Set("tenant", "value-of-metadata")
	l.Original.Metadata.Set("password", "hunter2")
	l.Origin.Key = []byte("value-of-key")
	for _, text := range []*string{&l.Failure.Description, &l.Failure.Stack, &l.Failure.Type, &l.Failure.Reason, &l.Origin.ConsumerGroup} {
		*text = "password=hunter2 here"
	}
	l.Failure.History = []classify.Attempt{{At: fixture.FailedAt, Error: "password=hunter2"}}
}
