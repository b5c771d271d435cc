package browser

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Options configures a Page.
type Options struct {
	// Width and Height are of the window. Default: 1280 by 900.
	Width, Height int
	// Dark asks pages for their dark scheme.
	Dark bool
	// NoScript switches scripts off.
	NoScript bool
}

// Page is a tab of a browser, with cookies of its own.
type Page struct {
	t       testing.TB
	ctx     context.Context
	axe     string
	trouble *trouble
}

// Page opens an empty tab, which closes with the test.
func (b *Browser) Page(t testing.TB, o Options) *Page {
	t.Helper()
	if o.Width == 0 {
		o.Width = 1280
	}
	if o.Height == 0 {
		o.Height = 900
	}
	p := &Page{t: t, axe: b.axe, trouble: newTrouble()}
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	p.ctx = ctx
	t.Cleanup(func() {
		cancel()
		p.trouble.wait()
	})
	scheme := "light"
	if o.Dark {
		scheme = "dark"
	}
	p.do("open a tab")
	if err := chromedp.Listen(ctx, p.trouble.listen(ctx)); err != nil {
		t.Fatal(err)
	}
	p.do("prepare a tab", chromedp.EmulateViewport(int64(o.Width), int64(o.Height)),
		chromedp.Func(func(ctx context.Context, to *chromedp.Target) error {
			_, err := cdp.Call(ctx, to, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme},
					{Name: "prefers-reduced-motion", Value: "reduce"}},
			})
			if err == nil && o.NoScript {
				_, err = cdp.Call(ctx, to, emulation.SetScriptExecutionDisabled,
					emulation.SetScriptExecutionDisabledParams{Value: true})
			}
			return err
		}))
	return p
}

func (p *Page) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	run(p, what, chromedp.Steps(steps...))
}

// run runs one action within the test's patience. A deadline on the context of the first action would end the tab.
func run[T any](p *Page, what string, action chromedp.Action[T]) T {
	p.t.Helper()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := chromedp.Run(p.ctx, action)
		answers <- answer{value, err}
	}()
	got := testkit.Receive(p.t, what, answers)
	if got.err != nil {
		p.t.Fatalf("%s: %v", what, got.err)
	}
	return got.value
}

// Open loads an address and returns the status of its answer.
func (p *Page) Open(url string) int {
	p.t.Helper()
	p.trouble.home(url)
	return status(run(p, "open "+url, chromedp.NavigateResponse(url)))
}

// Follow clicks the first element that a CSS selector finds, waits until the page behind it has loaded, and returns its
// status.
func (p *Page) Follow(selector string) int {
	p.t.Helper()
	return p.load("follow "+selector, chromedp.Click(chromedp.CSS(selector)))
}

// FollowKey presses keys, the last of which leads to another page.
func (p *Page) FollowKey(keys string) int {
	p.t.Helper()
	return p.load("press a key", chromedp.KeyEvent(keys))
}

func (p *Page) load(what string, step chromedp.Action[chromedp.Void]) int {
	p.t.Helper()
	return status(run(p, what, func(ctx context.Context, _ *chromedp.Target) (*network.Response, error) {
		return chromedp.RunResponse(ctx, step)
	}))
}

func status(r *network.Response) int {
	if r == nil {
		return 0
	}
	return int(r.Status)
}

// Click clicks the first element that a CSS selector finds, and stays on the page.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.do("click "+selector, chromedp.Click(chromedp.CSS(selector)))
}

// Type types into the first element that a CSS selector finds.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	p.do("type into "+selector, chromedp.SendKeys(chromedp.CSS(selector), text))
}

// Key presses keys wherever the focus is.
func (p *Page) Key(keys string) {
	p.t.Helper()
	p.do("press a key", chromedp.KeyEvent(keys))
}

// Text returns the visible text of the first element that a CSS selector finds, and waits for the element.
func (p *Page) Text(selector string) string {
	p.t.Helper()
	return run(p, "read "+selector, chromedp.Text(chromedp.CSS(selector)))
}

// Address returns where the page is.
func (p *Page) Address() string {
	p.t.Helper()
	return run(p, "read the address", chromedp.Location())
}

// Shoot returns a picture of the whole page, as PNG.
func (p *Page) Shoot() []byte {
	p.t.Helper()
	return run(p, "take a picture", chromedp.FullScreenshot(100))
}

// Eval returns the value of an expression of the page's script. It works for pages whose own scripts are switched off
// too.
func Eval[T any](p *Page, expression string) T {
	p.t.Helper()
	return run(p, "evaluate "+expression, chromedp.Evaluate[T](expression))
}

// TabTo presses the tabulator until the focus is on an element that a CSS selector finds, as a person without a mouse
// does.
func (p *Page) TabTo(selector string) {
	p.t.Helper()
	found := fmt.Sprintf("document.activeElement !== null && document.activeElement.matches(%q)", selector)
	for range maxTabs {
		p.Key("\t")
		if Eval[bool](p, found) {
			return
		}
	}
	p.t.Fatalf("the keyboard does not reach %s at %s", selector, p.Address())
}

// maxTabs is more than a page has elements that take the focus.
const maxTabs = 300
