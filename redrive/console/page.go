package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/web"
)

// answer is what a route gives: a page, another address, or a file. Nothing of it is sent before all of it is there.
type answer struct {
	status  int           // of a page, if not 200
	page    string        // names templates/<page>.html
	title   string        // of the page, and its h1
	view    any           // what the page shows
	refresh time.Duration // after which the page loads itself again, without script
	to      string        // address to go to, as request.link returns it
	file    *web.File
	static  []byte // what is the same for everyone, and never changes
	kind    string // its media type
}

// layout is what each page knows beside its view.
type layout struct {
	Title, Service, Base, Style, Script, Icon string
	Nav                                       []place
	Person                                    operate.Person
	Note                                      string
	Refresh                                   int // seconds
	View                                      any

	can func(name string) bool
}

// place is a link of the navigation.
type place struct {
	Name, Link string
	Here       bool
}

// Can reports whether there is a route of that name that the person may use. Templates ask it before they show an
// action.
func (l layout) Can(name string) bool { return l.can(name) }

// Look reports whether the person may see payloads and values of metadata.
func (l layout) Look() bool { return l.Person.Right >= operate.Look }

// live is the header by which the script asks for the moving part of a page alone.
const live = "Spillway-Live"

var errTemplate = errors.New("the template of the page failed")

// protect sets what a browser must not do with an answer.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store") // what letters say is for the person who asked
}

func redirect(w http.ResponseWriter, status int, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(status)
}

// send sends an answer. An error means that nothing was sent.
func (c *console) send(w http.ResponseWriter, r *request, a answer) error {
	switch {
	case a.file != nil:
		a.file.Send(w, r.HTTP)
		return nil
	case a.static != nil:
		w.Header().Set("Content-Type", a.kind)
		w.Header().Set("Vary", "Accept-Encoding")
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		web.Send(w, r.HTTP, http.StatusOK, a.static)
		return nil
	case a.to != "":
		redirect(w, http.StatusSeeOther, a.to)
		return nil
	}
	page, name := c.pages[a.page], "layout"
	if page == nil {
		return fmt.Errorf("%w: there is no page %q", errTemplate, a.page)
	}
	if r.HTTP.Header.Get(live) != "" && page.Lookup("live") != nil && a.status == 0 {
		name = "live"
	}
	var body bytes.Buffer
	if err := page.ExecuteTemplate(&body, name, c.layout(r, a)); err != nil {
		return fmt.Errorf("%w: %w", errTemplate, err)
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Vary", "Accept-Encoding, "+live)
	if a.status == 0 && web.Unchanged(w, r.HTTP, body.Bytes()) {
		return nil
	}
	web.Send(w, r.HTTP, max(a.status, http.StatusOK), body.Bytes())
	return nil
}

func (c *console) layout(r *request, a answer) layout {
	l := layout{
		Title: a.title, Service: c.service, Base: r.base, Style: styleName, Script: scriptName, Icon: iconName,
		Person: r.Person, Note: r.Note, Refresh: int(a.refresh.Seconds()), View: a.view, can: func(name string) bool {
			return c.can(r.Person, name)
		},
	}
	if c.inFleet && r.Person.Right > operate.Nothing {
		l.Nav = append(l.Nav, place{Name: "All services", Link: r.base + "../../"})
	}
	for _, found := range c.routes {
		if found.nav != "" && r.Person.Right >= found.Right {
			l.Nav = append(l.Nav, place{found.nav, r.link(found.Pattern, nil), r.Route == found.Name})
		}
	}
	return l
}

//go:embed templates/*.html
var templates embed.FS

//go:embed static/style.css
var style []byte

//go:embed static/script.js
var script []byte

//go:embed static/icon.svg
var icon []byte

// The names of the static files change with their bytes, so that browsers keep each for good.
var (
	styleName  = "style." + hashOf(style) + ".css"
	scriptName = "script." + hashOf(script) + ".js"
	iconName   = "icon." + hashOf(icon) + ".svg"
)

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:8])
}

// static answers with a style, a script or an icon. They are the same for everyone.
func (c *console) static(r *request) (answer, error) {
	switch r.HTTP.PathValue("file") {
	case styleName:
		return answer{kind: "text/css; charset=utf-8", static: style}, nil
	case scriptName:
		return answer{kind: "text/javascript; charset=utf-8", static: script}, nil
	case iconName:
		return answer{kind: "image/svg+xml", static: icon}, nil
	}
	return answer{}, noPage()
}

// parse reads the templates: each page has the layout and the parts.
func (c *console) parse() (map[string]*template.Template, error) {
	common, err := template.New("").Funcs(c.functions()).ParseFS(templates, "templates/layout.html",
		"templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("read the layout: %w", err)
	}
	names, err := fs.Glob(templates, "templates/*.html")
	if err != nil {
		return nil, err
	}
	pages := make(map[string]*template.Template)
	for _, name := range names {
		page := strings.TrimSuffix(path.Base(name), ".html")
		if page == "layout" || page == "parts" {
			continue
		}
		clone, err := common.Clone()
		if err == nil {
			clone, err = clone.ParseFS(templates, name)
		}
		if err != nil {
			return nil, fmt.Errorf("read the page %s: %w", page, err)
		}
		pages[page] = clone
	}
	return pages, nil
}

// awaitBody gives the body of a request the time of a request to arrive: a client that sends it byte by byte would
// hold its connection for ever, also if nothing reads the body, because a server reads what is left of it before it
// answers. The time of the server itself stays, if it is shorter. The returned function is called when all of the body
// was read: what happens to the connection from then on does not end the request.
func (c *console) awaitBody(w http.ResponseWriter, hr *http.Request) (arrived func()) {
	if hr.Body == nil || hr.Body == http.NoBody {
		return func() {}
	}
	timeout := c.timeout
	if server, ok := hr.Context().Value(http.ServerContextKey).(*http.Server); ok && server.ReadTimeout > 0 {
		timeout = min(timeout, server.ReadTimeout)
	}
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(timeout)) // a writer that cannot has no connection of its own
	return func() { _ = connection.SetReadDeadline(time.Time{}) }
}
