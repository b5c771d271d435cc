package console

import (
	"compress/gzip"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a Console on a SQLite file of its own. The header Test-Role of a request says what its person may do, and
// Test-Name who it is.
type bench struct {
	t         testing.TB
	db        *sql.DB
	store     *letters.Store
	campaigns *campaigns.Campaigns
	console   *console
}

// newBench returns a bench whose Console is configured by change.
func newBench(t testing.TB, change ...func(*Config)) *bench {
	return benchOn(t, fixture.SQLite, change...)
}

func benchOn(t testing.TB, d fixture.Database, change ...func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, db: d.Create(t)()}
	b.store = fixture.StoreOn(t, b.db)
	var err error
	if b.campaigns, err = campaigns.New(t.Context(), b.store, campaigns.Config{Allow: []string{"orders", "refunds"}}); err != nil {
		t.Fatal(err)
	}
	config := Config{Campaigns: b.campaigns, Access: access}
	for _, f := range change {
		f(&config)
	}
	b.console = newConsole(t, config)
	b.console.counting = time.Minute // a page that is slow on this machine is whole
	return b
}

func newConsole(t testing.TB, config Config) *console {
	t.Helper()
	handler := testkit.Must(New(config))
	return handler.(*console)
}

var errAccess = errors.New("the directory of people is away")

// access is the access function of a bench.
func access(r *http.Request) (Person, error) {
	name := r.Header.Get("Test-Name")
	if name == "" {
		name = "ann"
	}
	switch role := r.Header.Get("Test-Role"); role {
	case "error":
		return Person{}, errAccess
	case "panic":
		panic("the directory is on fire")
	default:
		for i, known := range roles {
			if known == role {
				return Person{Name: name, Role: Role(i)}, nil
			}
		}
	}
	return Person{Name: name, Role: Approve}, nil
}

// fill stores n letters of several causes, the same for the same seed. The newest failed a minute ago.
func (b *bench) fill(seed uint64, n int) {
	b.t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	now := time.Now().UTC().Truncate(time.Second)
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = seeded(random, i, now.Add(-time.Duration(n-i)*time.Minute))
	}
	fixture.Publish(b.t, b.store, "orders.dlq", messages...)
}

var seeds = []struct {
	handler, topic, reason, description string
	class                               classify.Class
}{
	{"billing", "orders", "no_such_customer", "customer %d is unknown", classify.ClassPermanent},
	{"billing", "orders", "unmarshal_error", "read the order: unexpected end of JSON input at offset %d", classify.ClassInvalid},
	{"shipping", "orders", "panic", "panic: runtime error: index out of range [%d]", classify.ClassPermanent},
	{"mailing", "refunds", "timeout", "the mail server did not answer within %d ms", classify.ClassTransient},
}

func seeded(random *rand.Rand, i int, at time.Time) *message.Message {
	s := seeds[min(random.IntN(6), len(seeds)-1)]
	return fixture.Letter(fmt.Sprintf("id-%d", i), fmt.Sprintf(`{"order":%d,"amount":%d.50}`, i, random.IntN(1000)), func(l *poison.Letter) {
		l.Origin.Handler, l.Origin.Topic = s.handler, s.topic
		l.Failure.Class, l.Failure.Reason, l.Failure.Description = s.class, s.reason, fmt.Sprintf(s.description, random.IntN(10_000))
		l.Failure.FirstFailedAt, l.Failure.LastFailedAt = at.Add(-10*time.Second), at
	})
}

// page is an answer of the console.
type page struct {
	*http.Response
	body string // unpacked
	sent int    // bytes that were transferred
}

// as changes who sends a request.
func as(role Role) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Test-Role", roles[role]) }
}

// get asks for a path of the console.
func (b *bench) get(path string, change ...func(*http.Request)) page {
	b.t.Helper()
	return b.send(httptest.NewRequest(http.MethodGet, path, nil), change...)
}

// post sends a form to a path of the console, as a page of the console does.
func (b *bench) post(path string, form url.Values, change ...func(*http.Request)) page {
	b.t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return b.send(r, change...)
}

func (b *bench) send(r *http.Request, change ...func(*http.Request)) page {
	b.t.Helper()
	return send(b.t, b.console, r, change...)
}

func send(t testing.TB, to http.Handler, r *http.Request, change ...func(*http.Request)) page {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r = r.WithContext(ctx)
	r.Header.Set("Accept-Encoding", "gzip")
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	to.ServeHTTP(w, r)
	p := page{Response: w.Result(), sent: w.Body.Len()}
	var body io.Reader = w.Body
	if p.Header.Get("Content-Encoding") == "gzip" && p.sent > 0 {
		z := testkit.Must(gzip.NewReader(w.Body))
		body = z
	}
	text := testkit.Must(io.ReadAll(body))
	p.body = string(text)
	return p
}

// want fails the test unless the page has the status and all of the texts.
func (p page) want(t testing.TB, status int, texts ...string) page {
	t.Helper()
	testkit.Require(t, p.StatusCode == status, "status %d, want %d: %s", p.StatusCode, status, p.body)
	for _, text := range texts {
		testkit.Check(t, strings.Contains(p.body, text), "the page lacks %q: %s", text, p.body)
	}
	return p
}

func (p page) wantNot(t testing.TB, texts ...string) {
	t.Helper()
	for _, text := range texts {
		testkit.Check(t, !strings.Contains(p.body, text), "the page has %q: %s", text, p.body)
	}
}

func oneLetter(seq int64, statuses []letters.Status) letters.Filter {
	return letters.Filter{After: seq - 1, MaxSeq: seq, Statuses: statuses}
}

// numberIf is a number, if it is known.
func numberIf(n int, known bool) operate.Number {
	if !known {
		return operate.Number{}
	}
	return operate.Exactly(n)
}

// mark gives letters another state, as eve.
func (b *bench) mark(f letters.Filter, status letters.Status) {
	b.t.Helper()
	testkit.Must(b.store.MarkAll(b.t.Context(), f, status, letters.Act{By: "eve"}))
}
