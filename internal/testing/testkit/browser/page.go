package browser

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
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
	pipe    *pipe
	session string
	axe     string
	trouble *trouble
	visits  *visits
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
	p := &Page{t: t, pipe: b.pipe, axe: b.axe, trouble: newTrouble(), visits: newVisits()}
	var opened struct{ BrowserContextID, TargetID, SessionID string }
	p.call("Target.createBrowserContext", nil, &opened)
	p.call("Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": opened.BrowserContextID}, &opened)
	p.call("Target.attachToTarget", map[string]any{"targetId": opened.TargetID, "flatten": true}, &opened)
	p.session = opened.SessionID
	t.Cleanup(func() {
		_ = p.pipe.call("", "Target.disposeBrowserContext", map[string]any{"browserContextId": opened.BrowserContextID}, nil)
		p.trouble.wait()
	})
	p.pipe.hear(p.session, func(event string, params json.RawMessage) {
		p.visits.hear(event, params)
		p.trouble.hear(p, event, params)
	})
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		p.call(domain+".enable", nil, nil)
	}
	scheme := "light"
	if o.Dark {
		scheme = "dark"
	}
	p.call("Page.setLifecycleEventsEnabled", map[string]any{"enabled": true}, nil)
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": o.Width, "height": o.Height, "deviceScaleFactor": 1, "mobile": false}, nil)
	p.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}}}, nil)
	p.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": o.NoScript}, nil)
	return p
}

// call calls a method of the protocol within the test's patience.
func (p *Page) call(method string, params map[string]any, result any) {
	p.t.Helper()
	var err error
	testkit.Within(p.t, method, func() { err = p.pipe.call(p.session, method, params, result) })
	if err != nil {
		p.t.Fatal(err)
	}
}

// Open loads an address and returns the status of its answer.
func (p *Page) Open(url string) int {
	p.t.Helper()
	p.trouble.home(url)
	return p.load("open "+url, func() {
		var went struct{ ErrorText string }
		if p.call("Page.navigate", map[string]any{"url": url}, &went); went.ErrorText != "" {
			p.t.Fatalf("open %s: %s", url, went.ErrorText)
		}
	})
}

// Follow clicks the first element that a CSS selector finds, waits until the page behind it has loaded, and returns its
// status.
func (p *Page) Follow(selector string) int {
	p.t.Helper()
	return p.load("follow "+selector, func() { p.Click(selector) })
}

// FollowKey presses keys, the last of which leads to another page.
func (p *Page) FollowKey(keys string) int {
	p.t.Helper()
	return p.load("press a key", func() { p.Key(keys) })
}

// load takes a step that leads to another page, waits until that page has loaded, and returns its status.
func (p *Page) load(what string, step func()) (status int) {
	p.t.Helper()
	before := p.visits.number()
	step()
	testkit.Eventually(p.t, what, func() bool {
		var loaded bool
		status, loaded = p.visits.loaded(before)
		return loaded
	})
	return status
}

// Click clicks the first element that a CSS selector finds, and stays on the page.
func (p *Page) Click(selector string) {
	p.t.Helper()
	var at []float64
	testkit.Eventually(p.t, "click "+selector, func() bool {
		at = Eval[[]float64](p, fmt.Sprintf(`(() => { const e = document.querySelector(%q); if (!e) return null;
			e.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
			const r = e.getClientRects()[0]; return r ? [r.x + r.width / 2, r.y + r.height / 2] : null; })()`, selector))
		return len(at) == 2
	})
	for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
		p.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1}, nil)
	}
}

// Print shows the page as it is printed.
func (p *Page) Print() {
	p.t.Helper()
	p.call("Emulation.setEmulatedMedia", map[string]any{"media": "print"}, nil)
}

// Type types into the first element that a CSS selector finds.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	testkit.Eventually(p.t, "type into "+selector, func() bool {
		return Eval[bool](p, fmt.Sprintf("(() => { const e = document.querySelector(%q); e?.focus(); return !!e; })()", selector))
	})
	p.Key(text)
}

// Key presses keys wherever the focus is: characters, the tabulator \t and the return key \r.
func (p *Page) Key(keys string) {
	p.t.Helper()
	for _, key := range keys {
		params := map[string]any{"key": string(key), "text": string(key)}
		switch key {
		case '\t':
			params = map[string]any{"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
		case '\r':
			params = map[string]any{"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
		}
		params["type"] = "keyDown"
		p.call("Input.dispatchKeyEvent", params, nil)
		params["type"] = "keyUp"
		delete(params, "text")
		p.call("Input.dispatchKeyEvent", params, nil)
	}
}

// Text returns the visible text of the first element that a CSS selector finds, and waits for the element.
func (p *Page) Text(selector string) string {
	p.t.Helper()
	var text *string
	testkit.Eventually(p.t, "read "+selector, func() bool {
		text = Eval[*string](p, fmt.Sprintf("document.querySelector(%q)?.innerText", selector))
		return text != nil
	})
	return *text
}

// Address returns where the page is.
func (p *Page) Address() string {
	p.t.Helper()
	return Eval[string](p, "document.location.toString()")
}

// Window returns a picture of what a person sees without scrolling, as PNG.
func (p *Page) Window() []byte {
	p.t.Helper()
	var shot struct{ Data string }
	p.call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	picture, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	return picture
}

// Eval returns the value of an expression of the page's script, or of the promise that it returns. It works for pages
// whose own scripts are switched off too. A page that goes to another one meanwhile is asked again.
func Eval[T any](p *Page, expression string) (value T) {
	p.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	testkit.Eventually(p.t, "evaluate "+expression, func() bool {
		err := p.pipe.call(p.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer)
		if err != nil && !strings.Contains(err.Error(), "context") && !strings.Contains(err.Error(), "navigated") {
			p.t.Fatal(err)
		}
		return err == nil
	})
	if e := answer.ExceptionDetails; e != nil {
		p.t.Fatalf("evaluate %s: %s %s", expression, e.Text, e.Exception.Description)
	}
	if answer.Result.Value == nil { // undefined
		return value
	}
	if err := json.Unmarshal(answer.Result.Value, &value); err != nil {
		p.t.Fatalf("evaluate %s: %v: %s", expression, err, answer.Result.Value)
	}
	return value
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

// Axe returns what axe-core finds wrong on the page, one line for each rule and element: nothing is the good answer.
// The page must have script.
func (p *Page) Axe() []string {
	p.t.Helper()
	Eval[any](p, p.axe+";undefined")
	type violation struct {
		ID, Impact, Help string
		Nodes            []struct {
			HTML           string
			FailureSummary string
		}
	}
	found := Eval[[]violation](p, `axe.run(document, {resultTypes: ["violations"], iframes: false}).then(r => r.violations)`)
	var lines []string
	for _, v := range found {
		for _, node := range v.Nodes {
			lines = append(lines, fmt.Sprintf("%s (%s): %s: %.300s: %.300s", v.ID, v.Impact, v.Help, node.HTML,
				node.FailureSummary))
		}
	}
	return lines
}

// visits are the documents that the main frame of a tab had, in order. Each has a loader of its own.
type visits struct {
	mu     sync.Mutex
	order  []string
	status map[string]int
	load   map[string]bool
}

func newVisits() *visits { return &visits{status: map[string]int{}, load: map[string]bool{}} }

// number returns how many documents there were.
func (v *visits) number() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.order)
}

// loaded reports whether the document with a number has loaded, or gave way to another one, and its status.
func (v *visits) loaded(number int) (status int, loaded bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.order) <= number {
		return 0, false
	}
	loader := v.order[number]
	return v.status[loader], v.load[loader] || len(v.order) > number+1
}

func (v *visits) hear(event string, params json.RawMessage) {
	var e struct {
		Name, LoaderID, Type string
		Frame                struct{ LoaderID, ParentID string }
		Response             struct{ Status int }
	}
	switch event {
	case "Page.frameNavigated", "Page.lifecycleEvent", "Network.responseReceived":
		if json.Unmarshal(params, &e) != nil {
			return
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case event == "Page.frameNavigated" && e.Frame.ParentID == "":
		v.order = append(v.order, e.Frame.LoaderID)
	case event == "Page.lifecycleEvent" && e.Name == "load":
		v.load[e.LoaderID] = true
	case event == "Network.responseReceived" && e.Type == "Document":
		v.status[e.LoaderID] = e.Response.Status
	}
}
