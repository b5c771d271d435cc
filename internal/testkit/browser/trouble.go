package browser

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// trouble is what a page did that no page should do.
type trouble struct {
	mu       sync.Mutex
	host     string
	lines    []string
	requests []string
	closing  sync.WaitGroup
}

func newTrouble() *trouble { return new(trouble) }

// Trouble returns what happened so far that should not: dialogs, errors of scripts, what the content security policy
// refused, and requests to other hosts than that of the last Open.
func (p *Page) Trouble() []string {
	p.trouble.mu.Lock()
	defer p.trouble.mu.Unlock()
	return append([]string(nil), p.trouble.lines...)
}

// Requests returns the paths that the page asked its host for.
func (p *Page) Requests() []string {
	p.trouble.mu.Lock()
	defer p.trouble.mu.Unlock()
	return append([]string(nil), p.trouble.requests...)
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
	case u.Scheme == "data" || u.Scheme == "about":
	case u.Host == tr.host:
		tr.requests = append(tr.requests, u.RequestURI())
	default:
		tr.lines = append(tr.lines, "request to another host: "+address)
	}
}

// wait waits for the answers to dialogs.
func (tr *trouble) wait() { tr.closing.Wait() }

// listen returns what hears the events of a tab. It must not wait for the browser.
func (tr *trouble) listen(tab context.Context) func(any) {
	return func(event any) {
		switch e := event.(type) {
		case *page.EventJavascriptDialogOpening:
			tr.add("dialog: %s %q", e.Type, e.Message)
			tr.closing.Add(1)
			go func() { // an open dialog stops the page
				defer tr.closing.Done()
				_ = chromedp.Do(tab, chromedp.Func(func(ctx context.Context, to *chromedp.Target) error {
					_, err := cdp.Call(ctx, to, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
					return err
				}))
			}()
		case *network.EventRequestWillBeSent:
			tr.asked(e.Request.URL)
		case *runtime.EventExceptionThrown:
			tr.add("exception: %s", e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeAssert {
				var text []string
				for _, arg := range e.Args {
					text = append(text, string(arg.Value))
				}
				tr.add("console: %s", strings.Join(text, " "))
			}
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError {
				tr.add("log: %s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
			}
		}
	}
}
