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

// Feature V11: the console of the command acts under the name of --by, masks what the command masks, and answers this
// machine alone.
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
