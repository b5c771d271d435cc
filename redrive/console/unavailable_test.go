package console

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/web"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// flaky connects to a database that can be unavailable, or hang, as fault does.
type flaky struct {
	driver  driver.Driver
	address string
	fault   atomic.Pointer[func() error]
}

func (f *flaky) Driver() driver.Driver { return f.driver }

func (f *flaky) Connect(context.Context) (driver.Conn, error) {
	if fault := f.fault.Load(); fault != nil {
		if err := (*fault)(); err != nil {
			return nil, err
		}
	}
	return f.driver.Open(f.address)
}

// onFlaky is a bench whose database is asked anew for each connection.
func onFlaky(t *testing.T, change ...func(*Config)) (*bench, *flaky) {
	address := databases.SQLite.Create(t)
	f := &flaky{driver: databases.SQLite.Open(t, address).Driver(), address: address}
	db := sql.OpenDB(f)
	db.SetMaxIdleConns(-1)
	t.Cleanup(func() { _ = db.Close() })
	create := func(testing.TB) func() *sql.DB { return func() *sql.DB { return db } }
	return benchOn(t, fixture.Database{Name: "flaky", Create: create}, change...), f
}

// Feature V11: while the database is unavailable each page says so, masked, and asks again, until it is back.
func TestDatabaseUnavailable(t *testing.T) {
	log := new(testkit.Log)
	b, f := onFlaky(t, func(c *Config) { c.Logger = log })
	b.fill(1, 3)
	paths := []string{"/", "/causes", "/letters", "/letters?text=x"}
	unavailable := func() error {
		return errors.New("connect to db.internal as ops with password=hunter2: connection refused")
	}
	f.fault.Store(&unavailable)
	for _, path := range paths {
		p := b.get(path).want(t, http.StatusServiceUnavailable, "The database does not answer",
			"This page tries again by itself every few seconds.", `http-equiv="refresh"`)
		testkit.Check(t, p.Header.Get("Retry-After") != "", "%s: no Retry-After", path)
		b.get(path, as(Look)).wantNot(t, "db.internal")
		p.wantNot(t, "hunter2")
	}
	testkit.Check(t, len(log.Errors()) >= len(paths), "%d lines for %d failures", len(log.Errors()), len(paths))
	f.fault.Store(nil)
	for _, path := range paths {
		b.get(path).want(t, http.StatusOK)
	}
}

// Feature V11: a template that fails in the middle, or a handler that panics, gives the page of an error, whole.
func TestNeverHalfAPage(t *testing.T) {
	log := new(testkit.Log)
	b := newBench(t, func(c *Config) { c.Logger = log })
	b.fill(1, 3)
	broken := template.Must(template.New("layout").Parse(`<h1>half</h1>{{.View.Waiting}}{{.View.Nothing}}`))
	b.console.pages["overview"] = broken
	b.get("/").want(t, http.StatusInternalServerError, "The page failed", "</html>").wantNot(t, "half")
	b.console.routes = append(b.console.routes, route{Route: web.Route{Name: "panics", Method: http.MethodGet, Pattern: "/panics", Right: operate.Look},
		handle: func(*console, *request) (answer, error) { panic("in the handler") }})
	b.console.serve = b.console.handler()
	b.get("/panics").want(t, http.StatusInternalServerError, "The page failed")
	b.console.pages["error"] = broken
	b.get("/").want(t, http.StatusInternalServerError, "The page failed. The log of the service says more.").wantNot(t, "half")
	testkit.Check(t, len(log.Errors()) >= 3, "%v", log.Errors())
}

// Feature V11: a form sent while the database is unavailable keeps what was typed and its key. Sent again, it is done
// once.
func TestFormsWhileDatabaseUnavailable(t *testing.T) {
	b := newBench(t)
	b.fill(1, 6)
	slow := b.started(campaigns.Request{Seqs: []int64{5}})
	edit := with(b.get("/letters/1/edit").fields(t), "payload", "ann's", "reason", "INC-7", "do", "start")
	redrive := with(b.get("/redrive?seq=2").fields(t), "do", "start", "reason", "INC-7", "rate", "12.5")
	discard := with(b.get("/discard?seq=3").fields(t), "reason", "INC-7")
	for _, form := range []struct {
		path, table, leads string
		typed              url.Values
		kept               []string
	}{
		{"/letters/1/edit", "spillway_dead_letters", edit.Get("key"), edit, []string{"ann&#39;s", edit.Get("key"), edit.Get("version")}},
		{"/redrive", "spillway_campaigns", redrive.Get("key"), redrive, []string{`value="12.5"`, redrive.Get("key")}},
		{"/discard", "spillway_letter_events", "discards/", discard, nil},
		{"/campaigns/" + slow.ID + "/pause", "spillway_campaigns", slow.ID, reason, nil},
	} {
		heal := b.unavailable(form.table)
		p := b.post(form.path, form.typed)
		heal()
		p.want(t, http.StatusServiceUnavailable, append(form.kept, "You can send it again: it is done once.", `value="INC-7"`)...)
		again := p.fields(t)
		if form.typed.Has("do") {
			again.Set("do", "start")
		}
		b.post(form.path, again).goes(t, form.leads)
	}
	b.want(letters.StatusDiscarded, 1)
	testkit.Equal(t, "campaigns", len(b.all()), 3)
}
