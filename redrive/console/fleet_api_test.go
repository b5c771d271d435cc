package console

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

const secret = "s3cr3t-of-the-fleet"

// tokenFile is a file with the token.
func tokenFile(t testing.TB, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	testkit.NoError(t, os.WriteFile(path, []byte(secret+"\n"), 0o600))
	testkit.NoError(t, os.Chmod(path, mode))
	return path
}

// overAPI is a fleet with one service, whose console a server has.
func overAPI(t testing.TB, url string, log *testkit.Log) *ships {
	t.Helper()
	config := Config{URL: url, TokenFile: tokenFile(t, 0o600), Access: access}
	config.Logger = log
	m := testkit.Must(Fleet(map[string]Config{"far": config})).(*members)
	m.timeout = time.Minute
	return &ships{t, m, nil}
}

// Feature V11: a service with a console elsewhere is read over its API, with the token of a file. The fleet's page links
// to that console, and the person is asked for by the fleet's own Access.
func TestFleetOverAPI(t *testing.T) {
	far := newBench(t, func(c *Config) {
		c.Access = func(r *http.Request) (Person, error) {
			if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+secret)) != 1 || r.Header.Get("Cookie") != "" {
				return Person{}, nil
			}
			return Person{Name: "fleet", Role: LookWithoutPayload}, nil
		}
	})
	far.fill(1, 30)
	server := httptest.NewServer(http.StripPrefix("/deadletters", far.console))
	defer server.Close()
	home := server.URL + "/deadletters/"
	f := overAPI(t, home, new(testkit.Log))
	p := f.get("/", in("Cookie", "session=ann"))
	p.want(t, http.StatusOK, `href="`+home+`letters">30</a>`, `href="`+home+`letters?cause=`, "no_such_customer", "30 letters wait.")
	p.wantNot(t, secret)
	f.get("/s/far/").want(t, http.StatusNotFound)
	f.get("/", as(nothing)).want(t, http.StatusForbidden)
}

// Feature V11: nothing that the server of a service sends harms the fleet: no redirect takes the token elsewhere, no
// answer is too long, none becomes a part of the page, and no error has the token.
func TestFleetOverHostileAPI(t *testing.T) {
	var stolen atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	defer thief.Close()
	evil := `<script>alert(\"mark\")</script>\u202e\u0000`
	causes := `{"causes":[{"cause":"` + evil + `","reason":"` + evil + `","handler":"` + strings.Repeat("W", 1<<17) +
		`","description":"` + evil + `","count":-5,"class":"` + evil + `","first_failed_at":"` + evil + `"}]}`
	const unread = "This service could not be read."
	for _, row := range []struct {
		what, want string
		answer     http.HandlerFunc
	}{
		{"a redirect", unread, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, thief.URL+r.URL.Path, http.StatusFound)
		}},
		{"a long answer", unread, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"letters":{"waiting":1},"more":"` + strings.Repeat("x", 1<<20) + `"}`))
		}},
		{"another kind", unread, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"letters":{"waiting":1}}`)) }},
		{"a refusal", unread, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }},
		{"hostile texts", "&lt;script&gt;", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			if strings.HasSuffix(r.URL.Path, "/causes") {
				_, _ = w.Write([]byte(causes))
			} else {
				_, _ = w.Write([]byte(`{"letters":{"waiting":-9,"new":3},"campaigns":{"running":2,"odd":-9},"what":{}}`))
			}
		}},
	} {
		server := httptest.NewServer(row.answer)
		log := new(testkit.Log)
		p := overAPI(t, server.URL, log).get("/")
		server.Close()
		p.want(t, http.StatusOK, row.want)
		p.wantNot(t, secret, "\u202e", "<script>alert")
		errs := fmt.Sprint(log.Errors())
		testkit.Check(t, len(p.body) <= 64<<10 && !strings.Contains(errs, secret) &&
			(row.want == unread) == (errs != "[]"), "%s: %d bytes, %v", row.what, len(p.body), errs)
	}
	testkit.Check(t, stolen.Load() == 0, "a redirect was followed")
}
