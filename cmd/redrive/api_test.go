package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/console"
)

// bothWays runs a test on the database, and over the API of a console: what the command prints is the same.
func bothWays(t *testing.T, messages []*message.Message, test func(*testing.T, *shop)) {
	t.Run("database", func(t *testing.T) { test(t, newShop(t, messages...)) })
	t.Run("api", func(t *testing.T) {
		s := newShop(t, messages...)
		s.overAPI()
		test(t, s)
	})
}

// apiServer is a console in the process of the test, whose answers a test can change.
type apiServer struct {
	*httptest.Server
	file   string // of the token
	behind atomic.Pointer[http.HandlerFunc]
}

// persons are whose tokens the console knows.
var persons = map[string]console.Person{
	"token-of-ann":  {Name: "ann", Role: console.Approve},
	"token-of-bob":  {Name: "bob", Role: console.Look},
	"token-of-carl": {Name: "carl", Role: console.LookWithoutPayload},
}

// overAPI lets the command work over the API of a console on the shop's database, as ann.
func (s *shop) overAPI() *apiServer {
	s.t.Helper()
	all := testkit.Must(campaigns.New(s.t.Context(), s.store, campaigns.Config{}))
	pages := testkit.Must(console.New(console.Config{Campaigns: all, Access: func(r *http.Request) (console.Person, error) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		return persons[token], nil
	}}))
	a := &apiServer{file: s.t.TempDir() + "/token"}
	handler := http.StripPrefix("/letters", pages).ServeHTTP
	a.behind.Store((*http.HandlerFunc)(&handler))
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*a.behind.Load())(w, r) }))
	s.t.Cleanup(a.Close)
	a.token(s.t, "token-of-ann")
	env := []string{"REDRIVE_URL=" + a.URL + "/letters/", "REDRIVE_TOKEN_FILE=" + a.file}
	for _, variable := range s.env {
		if !strings.HasPrefix(variable, "SPILLWAY_DB=") && !strings.HasPrefix(variable, "SPILLWAY_BY=") {
			env = append(env, variable)
		}
	}
	s.env, s.api = env, true
	return a
}

// token writes a token.
func (a *apiServer) token(t *testing.T, token string) {
	t.Helper()
	testkit.NoError(t, os.WriteFile(a.file, []byte(token+"\n"), 0o600))
}

// Feature V10, V13: a file for a spreadsheet is the same from the database and over the API, with the length of payloads
// that are masked.
func TestCSVBothWays(t *testing.T) {
	s := newShop(t, append(incident(), letter("leak", `{"password":"hunter2"}`))...)
	s.steps([]step{{0, "discarded 1 letter", []string{"discard", "2", "--reason", "x", "--yes"}}})
	want := s.pipe("export", "--format", "csv", "--status", "all")
	s.overAPI()
	got := s.pipe("export", "--format", "csv", "--status", "all")
	testkit.Check(t, got == want && got.code == 0 && strings.Count(got.out, "leak") != 0, "%+v, want %+v", got, want)
}
