package browser

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
)

// trouble is what a page did that no page should do.
type trouble struct {
	mu      sync.Mutex
	host    string
	lines   []string
	closing sync.WaitGroup
}

func newTrouble() *trouble { return new(trouble) }

// Trouble returns what happened so far that should not: dialogs, errors of scripts, what the content security policy
// refused, and requests to other hosts than that of the last Open.
func (p *Page) Trouble() []string {
	p.trouble.mu.Lock()
	defer p.trouble.mu.Unlock()
	return append([]string(nil), p.trouble.lines...)
}

func (tr *trouble) add(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.lines = append(tr.lines, fmt.Sprintf(format, args...))
}

// home says which host is no other.
func (tr *trouble) home(address string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if u, err := url.Parse(address); err == nil {
		tr.host = u.Host
	}
}

func (tr *trouble) asked(address string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	u, err := url.Parse(address)
	switch {
	case err != nil:
		tr.lines = append(tr.lines, "request to "+address)
	case u.Scheme == "data" || u.Scheme == "about" || u.Host == tr.host:
	default:
		tr.lines = append(tr.lines, "request to another host: "+address)
	}
}

// wait waits for the answers to dialogs.
func (tr *trouble) wait() { tr.closing.Wait() }

// hear hears an event of a tab. It must not wait for the browser.
func (tr *trouble) hear(p *Page, event string, params json.RawMessage) {
	var e struct {
		Type, Message    string
		Request          struct{ URL string }
		ExceptionDetails struct{ Text string }
		Args             []struct{ Value json.RawMessage }
		Entry            struct{ Level, Source, Text, URL string }
	}
	if json.Unmarshal(params, &e) != nil {
		return
	}
	switch event {
	case "Page.javascriptDialogOpening":
		tr.add("dialog: %s %q", e.Type, e.Message)
		tr.closing.Add(1)
		go func() { // an open dialog stops the page
			defer tr.closing.Done()
			_ = p.pipe.call(p.session, "Page.handleJavaScriptDialog", map[string]any{"accept": false}, nil)
		}()
	case "Network.requestWillBeSent":
		tr.asked(e.Request.URL)
	case "Runtime.exceptionThrown":
		tr.add("exception: %s", e.ExceptionDetails.Text)
	case "Runtime.consoleAPICalled":
		if e.Type == "error" || e.Type == "assert" {
			var text []string
			for _, arg := range e.Args {
				text = append(text, string(arg.Value))
			}
			tr.add("console: %s", strings.Join(text, " "))
		}
	case "Log.entryAdded":
		if e.Entry.Level == "error" {
			tr.add("log: %s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	}
}
