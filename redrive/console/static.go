package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/watermill-spillway/spillway/internal/operate/packed"
)

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
	var f file
	var content []byte
	switch r.http.PathValue("file") {
	case styleName:
		f.kind, content = "text/css; charset=utf-8", style
	case scriptName:
		f.kind, content = "text/javascript; charset=utf-8", script
	case iconName:
		f.kind, content = "image/svg+xml", icon
	default:
		return answer{}, noPage()
	}
	if f.cached = true; packed.Takes(r.http) {
		f.gzip, content = true, packed.Gzip(content)
	}
	f.size = int64(len(content))
	f.write = func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(content))
		return err
	}
	return answer{file: &f}, nil
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
