package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

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
	if line := testkit.Receive(s.t, "the address of the console", lines); json.Unmarshal([]byte(line), &said) != nil || said.URL == "" {
		s.t.Fatalf("it said %q", line)
	}
	return &pageServer{s.t, said.URL}
}

func (p *pageServer) send(method, path string, form url.Values, header ...string) (status int, body string) {
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
	text := testkit.Must(io.ReadAll(response.Body))
	return response.StatusCode, string(text)
}

// Feature V11: the console of the command acts under the name of --by, masks what the command masks, and answers this
// machine alone.
func TestConsole(t *testing.T) {
	s := newShop(t, letter("id-1", `{"password":"hunter2","order":4711}`))
	p := s.console()
	if status, body := p.send(http.MethodGet, "letters/1", nil); status != http.StatusOK || !strings.Contains(body, "4711") || strings.Contains(body, "hunter2") {
		t.Errorf("status %d: %s", status, body)
	}
	s.pipe("list", "--url", p.url).wants(t, 0, "id-1")
	for _, header := range [][]string{{"Host", "evil.example"}, {"X-Forwarded-For", "10.0.0.7"}} {
		if status, _ := p.send(http.MethodGet, "", nil, header...); status != http.StatusForbidden {
			t.Errorf("%v: status %d", header, status)
		}
	}
	unmask := url.Values{"reason": {"INC-7"}}
	if status, body := p.send(http.MethodPost, "letters/1/payload", unmask); status != http.StatusOK || !strings.Contains(body, "hunter2") {
		t.Errorf("status %d: %s", status, body)
	}
	events, err := s.store.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventShown}})
	testkit.Check(t, err == nil && len(events) == 1 && events[0].By == "ann", "%+v, %v", events, err)
	if status, _ := p.send(http.MethodPost, "letters/1/payload", unmask, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"); status != http.StatusForbidden {
		t.Errorf("a form of another site: status %d", status)
	}

	p = s.console("--access", "look", "--by-header", "X-User")
	for user, want := range map[string]int{"": http.StatusForbidden, "bob": http.StatusOK} {
		if status, body := p.send(http.MethodGet, "", nil, "X-User", user); status != want || user != "" && !strings.Contains(body, user) {
			t.Errorf("user %q: status %d: %s", user, status, body)
		}
	}
	if status, _ := p.send(http.MethodPost, "letters/1/payload", unmask, "X-User", "bob"); status != http.StatusForbidden {
		t.Errorf("who may look acts: status %d", status)
	}
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
		got := s.pipe(append([]string{"console"}, args...)...)
		testkit.Check(t, got.code == 2 && strings.Contains(got.err, says), "%v: exit %d: %s", args, got.code, got.err)
	}
}
