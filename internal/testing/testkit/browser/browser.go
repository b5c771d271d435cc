// Package browser drives a real browser in tests of web pages: Debian's Chromium, headless.
//
// Start runs a browser for a test, and Browser.Page opens a tab in a profile of its own, with or without script, in the
// light or the dark scheme, at a width. A Page goes where its test sends it, by mouse or by keyboard:
//
//	page := browser.Start(t).Page(t, browser.Options{Width: 1280})
//	page.Open(server.URL)
//	page.Follow("a[href='/causes']") // a click, until the next page has loaded
//	page.Text("h1")
//
// A page that deceives or disturbs its reader is a failure that no assertion looks for. So each Page listens from its
// first moment: Page.Trouble returns the dialogs that opened, the errors of scripts and of the content security policy,
// and the requests to other hosts. Page.Axe returns what axe-core finds wrong for people with a keyboard or a screen
// reader.
//
// Without a browser a test is skipped, and in CI it fails: internal/testing/services says how the browser is installed.
package browser

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Browser is a running browser. Its test ends it.
type Browser struct {
	pipe *pipe
	axe  string
}

var flags = []string{
	"--remote-debugging-pipe", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--mute-audio", "--no-first-run",
	"--no-default-browser-check", "--password-store=basic", "--use-mock-keychain", "--disable-extensions", "--disable-sync",
	"--disable-default-apps", "--disable-dev-shm-usage", "--disable-hang-monitor", "--disable-prompt-on-repost", "--disable-popup-blocking",
	"--disable-background-networking", "--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows",
	"--disable-renderer-backgrounding", "--disable-client-side-phishing-detection", "--disable-component-update",
	"--disable-domain-reliability", "--disable-crash-reporter", "--disable-breakpad", "--metrics-recording-only",
	// Without zygotes every process is a child of the browser, which waits for them: none is left to an init that does
	// not.
	"--no-zygote",
}

// Start starts a browser, which ends with the test.
func Start(t testing.TB) *Browser {
	t.Helper()
	path, axe := services.Chromium(t), services.Axe(t)
	profile, err := os.MkdirTemp("", "spillway-browser-")
	if err != nil {
		t.Fatal(err)
	}
	reads, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, writes, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	said := new(output)
	cmd := exec.Command(path, append(flags, "--user-data-dir="+profile, "about:blank")...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = said, said, []*os.File{reads, writes}
	err = errors.Join(cmd.Start(), reads.Close(), writes.Close())
	if err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	b := &Browser{newPipe(in, out), axe}
	t.Cleanup(func() {
		testkit.Within(t, "the browser ends", func() {
			if err := errors.Join(b.pipe.call("", "Browser.close", nil, nil), cmd.Wait(), in.Close()); err != nil {
				t.Errorf("end the browser: %v\n%s", err, said)
			}
		})
		b.pipe.wait()
		_ = os.RemoveAll(profile)
	})
	testkit.Within(t, "the browser starts", func() { err = b.pipe.call("", "Browser.getVersion", nil, nil) })
	if err != nil {
		t.Fatalf("start %s: %v\n%s", path, err, said)
	}
	return b
}

// output keeps what the browser says, for the error of a start that failed.
type output struct {
	mu   sync.Mutex
	said bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.said.Len() > 64<<10 {
		o.said.Reset()
	}
	return o.said.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.said.String()
}

// pipe speaks the DevTools protocol with a browser that was started with --remote-debugging-pipe: JSON, each message
// ended by a zero.
type pipe struct {
	in, out *os.File

	done chan struct{} // closed when the browser has ended

	mu      sync.Mutex
	last    int
	waiting map[int]chan<- reply
	hearers map[string]func(event string, params json.RawMessage) // by session
	ended   bool
}

type reply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

func newPipe(in, out *os.File) *pipe {
	p := &pipe{in: in, out: out, done: make(chan struct{}), waiting: map[int]chan<- reply{}, hearers: map[string]func(string, json.RawMessage){}}
	go p.read()
	return p
}

// read passes on what the browser says, until it ends.
func (p *pipe) read() {
	defer close(p.done)
	lines := bufio.NewReader(p.out)
	for {
		line, err := lines.ReadBytes(0)
		if err != nil {
			break
		}
		var said struct {
			ID                int
			SessionID, Method string
			Params            json.RawMessage
			reply
		}
		if json.Unmarshal(line[:len(line)-1], &said) != nil {
			continue
		}
		p.mu.Lock()
		hear, answer := p.hearers[said.SessionID], p.waiting[said.ID]
		delete(p.waiting, said.ID)
		p.mu.Unlock()
		switch {
		case said.ID != 0 && answer != nil:
			answer <- said.reply
		case said.ID == 0 && hear != nil:
			hear(said.Method, said.Params)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for id, answer := range p.waiting {
		delete(p.waiting, id)
		answer <- reply{Error: &struct{ Message string }{"the browser has ended"}}
	}
}

// hear calls f with the events of a session. It must not wait for the browser.
func (p *pipe) hear(session string, f func(event string, params json.RawMessage)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hearers[session] = f
}

// call calls a method of the protocol, in a session or without one, and reads its result into result, if that is not
// nil.
func (p *pipe) call(session, method string, params map[string]any, result any) error {
	answers := make(chan reply, 1)
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return fmt.Errorf("%s: the browser has ended", method)
	}
	p.last++
	asked := map[string]any{"id": p.last, "method": method, "params": params}
	if session != "" {
		asked["sessionId"] = session
	}
	text, err := json.Marshal(asked)
	if err == nil {
		p.waiting[p.last] = answers
		_, err = p.in.Write(append(text, 0))
	}
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	got := <-answers
	if got.Error != nil {
		return fmt.Errorf("%s: %s", method, got.Error.Message)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(got.Result, result)
}

// wait waits until the browser has ended, and nothing is read any more.
func (p *pipe) wait() {
	<-p.done
	_ = p.out.Close()
}
