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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"
	"golang.org/x/net/html"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// roles are the roles by their names.
var roles = operate.RightNames

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
	allow := campaigns.Config{Allow: []string{"orders", "refunds"}}
	b.campaigns = testkit.Must(campaigns.New(t.Context(), b.store, allow))
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

var errAccess = errors.New("the directory of people is unavailable")

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

// fields are what a browser would send of the page's last form: the page of an action has one.
func (p page) fields(t testing.TB) url.Values {
	t.Helper()
	var form *html.Node
	for _, found := range p.elements(t, "form") {
		if attribute(found, "method") == "post" {
			form = found
		}
	}
	testkit.Require(t, form != nil, "there is no form: %s", p.body)
	values := url.Values{}
	for field := range form.Descendants() {
		name, value := attribute(field, "name"), attribute(field, "value")
		switch {
		case name == "", field.Data != "input" && field.Data != "textarea":
			continue
		case field.Data == "textarea":
			value = strings.ReplaceAll(strings.ReplaceAll(textOf(field), "\r\n", "\n"), "\n", "\r\n")
		case attribute(field, "type") == "checkbox" && !checked(field):
			continue
		}
		values.Add(name, value)
	}
	return values
}

func checked(field *html.Node) bool {
	return slices.ContainsFunc(field.Attr, func(a html.Attribute) bool { return a.Key == "checked" })
}

// wrong is what the page says is wrong with a field: next to it, and tied to it.
func (p page) wrong(t testing.TB, field string) string {
	t.Helper()
	said := map[string]string{}
	for _, line := range p.elements(t, "p") {
		said[attribute(line, "id")] = textOf(line)
	}
	for _, node := range p.elements(t, "") {
		if attribute(node, "name") != field || attribute(node, "aria-invalid") != "true" {
			continue
		}
		next := node.Parent.NextSibling
		if why := attribute(node, "aria-describedby"); next == nil || attribute(next, "id") != why {
			t.Errorf("what is wrong with %s does not stand next to it", field)
		} else {
			return said[why]
		}
	}
	t.Errorf("the page says nothing of %s: %s", field, p.body)
	return ""
}

// with is a form with other values.
func with(form url.Values, pairs ...string) url.Values {
	changed := url.Values{}
	for name, values := range form {
		changed[name] = values
	}
	for i := 0; i < len(pairs); i += 2 {
		changed[pairs[i]] = []string{pairs[i+1]}
	}
	return changed
}

// everything is the query of all letters that wait.
func (b *bench) everything() string {
	b.t.Helper()
	last := testkit.Must(hidden.Of(b.store).LastSeq(b.t.Context()))
	n := testkit.Must(b.store.Count(b.t.Context(), letters.Filter{}))
	return operate.Selection{Filter: letters.Filter{MaxSeq: last}, Number: n}.Values().Encode()
}

// goes returns the path of the page that an answer leads to.
func (p page) goes(t testing.TB, part string) string {
	t.Helper()
	to := p.Header.Get("Location")
	testkit.Require(t, p.StatusCode == 303 && strings.Contains(to, part),
		"status %d, to %q, want %q: %s", p.StatusCode, to, part, p.body)
	return "/" + strings.TrimLeft(to, "./")
}

// all returns the campaigns that there are.
func (b *bench) all() []campaigns.Campaign {
	b.t.Helper()
	return testkit.Must(b.campaigns.List(b.t.Context(), campaigns.List{}))
}

func (b *bench) want(status letters.Status, n int) {
	b.t.Helper()
	fixture.WantCount(b.t, b.store, fixture.Status(status), n)
}

// away takes a table away, so that the database refuses what needs it, until the returned function is called.
func (b *bench) unavailable(table string) (heal func()) {
	b.t.Helper()
	rename := func(from, to string) {
		testkit.Must(b.db.Exec(`ALTER TABLE ` + from + ` RENAME TO ` + to))
	}
	rename(table, table+"_unavailable")
	return func() { rename(table+"_unavailable", table) }
}
