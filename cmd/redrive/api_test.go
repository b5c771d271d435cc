package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/console"
	"github.com/watermill-spillway/spillway/redrive/letters"
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

// A pageServer is the command console, running.
type pageServer struct {
	t   *testing.T
	url string
}

// console runs the command on a free port until the test ends.
func (s *shop) console(args ...string) *pageServer {
	s.t.Helper()
	cmd := exec.Command(binary, append([]string{"console", "--addr", "127.0.0.1:0", "--json"}, args...)...)
	cmd.Env, cmd.Dir, cmd.Stderr = s.env, s.t.TempDir(), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	testkit.NoError(s.t, err)
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		lines <- line
	}()
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		testkit.Within(s.t, "the console ends", func() { err = cmd.Wait() })
		testkit.Check(s.t, err == nil, "the console ended with %v", err)
	})
	var said struct{ URL string }
	testkit.NoError(s.t, json.Unmarshal([]byte(testkit.Receive(s.t, "the address of the console", lines)), &said))
	return &pageServer{s.t, said.URL}
}

// send fails the test unless the answer has the status, and returns its body.
func (p *pageServer) send(want int, method, path string, form url.Values, header ...string) (body string) {
	p.t.Helper()
	r := testkit.Must(http.NewRequest(method, p.url+path, strings.NewReader(form.Encode())))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response := testkit.Must(client.Do(r))
	defer func() { _ = response.Body.Close() }()
	text := string(testkit.Must(io.ReadAll(response.Body)))
	testkit.Check(p.t, response.StatusCode == want, "%s %s: status %d: %s", method, path, response.StatusCode, text)
	return text
}

// Feature V11: the console of the command acts as --by, masks as the command does, and answers this machine alone.
func TestConsole(t *testing.T) {
	s := newShop(t, letter("id-1", `{"password":"hunter2","order":4711}`))
	p := s.console()
	page := p.send(http.StatusOK, http.MethodGet, "letters/1", nil)
	testkit.Check(t, strings.Contains(page, "4711") && !strings.Contains(page, "hunter2"), "%s", page)
	s.pipe("list", "--url", p.url).wants(t, 0, "id-1")
	for _, header := range [][]string{{"Host", "evil.example"}, {"X-Forwarded-For", "10.0.0.7"}} {
		p.send(http.StatusForbidden, http.MethodGet, "", nil, header...)
	}
	unmask := url.Values{"reason": {"INC-7"}}
	body := p.send(http.StatusOK, http.MethodPost, "letters/1/payload", unmask)
	testkit.Check(t, strings.Contains(body, "hunter2"), "%s", body)
	events, err := s.store.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventShown}})
	testkit.Check(t, err == nil && len(events) == 1 && events[0].By == "ann", "%+v, %v", events, err)
	p.send(http.StatusForbidden, http.MethodPost, "letters/1/payload", unmask, "Origin", "https://evil.example",
		"Sec-Fetch-Site", "cross-site")

	p = s.console("--access", "look", "--by-header", "X-User")
	p.send(http.StatusForbidden, http.MethodGet, "", nil, "X-User", "")
	body = p.send(http.StatusOK, http.MethodGet, "", nil, "X-User", "bob")
	testkit.Check(t, strings.Contains(body, "bob"), "%s", body)
	p.send(http.StatusForbidden, http.MethodPost, "letters/1/payload", unmask, "X-User", "bob") // who may look
}

// Feature V11: an address that other machines reach needs a word about access.
func TestConsoleFlags(t *testing.T) {
	s := newShop(t, letter("id-1", "{}"))
	for says, args := range map[string][]string{
		"--access":  {"--addr", ":0"},
		"--addr is": {"--addr", "localhost"},
		`"all"`:     {"--access", "all"},
		"--origin":  {"--addr", "127.0.0.1:0", "--origin", "nowhere"},
	} {
		s.pipe(append([]string{"console"}, args...)...).wants(t, 2, says)
	}
}
