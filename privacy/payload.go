package privacy

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
)

// maxDepth bounds how deep JSON is looked into. What is deeper is not shown.
const maxDepth = 512

// payload returns p as it may be shown.
func (r *rules) payload(p []byte) []byte {
	trimmed := bytes.TrimLeft(p, " \t\r\n")
	if len(trimmed) == 0 || strings.IndexByte(`{["`, trimmed[0]) < 0 || string(p) == Mark {
		masked := r.masked(string(p))
		if masked != string(p) && json.Valid(p) { // a card number alone
			masked = `"` + Mark + `"`
		}
		return []byte(masked)
	}
	d := &document{rules: r, in: p, from: json.NewDecoder(bytes.NewReader(p))}
	d.from.UseNumber()
	for !d.broken && d.next() { // several documents may follow each other, such as one a line
	}
	if d.broken {
		return d.rest()
	}
	d.out = append(d.out, p[d.done:]...)
	return d.out
}

// document walks through JSON token by token, and copies what may be shown.
type document struct {
	rules   *rules
	in, out []byte
	from    *json.Decoder
	done    int // what of in is copied, or masked
	at      int // the end of the latest token
	start   int // its beginning
	broken  bool
	levels  []level
}

// level is an object or an array that is open.
type level struct {
	object bool
	name   string // of the value that comes next, in lower case
	named  bool   // the name is read
	index  int    // of the value that comes next, in an array
	at     []places
}

// token reads the next token.
func (d *document) token() (json.Token, bool) {
	token, err := d.from.Token()
	if err != nil {
		d.broken = err != io.EOF || len(d.levels) > 0
		return nil, false
	}
	d.start, d.at = d.at, int(d.from.InputOffset())
	for d.start < d.at && strings.IndexByte(" \t\r\n,:", d.in[d.start]) >= 0 {
		d.start++
	}
	return token, true
}

// next masks the next document. It reports false behind the last, and if the JSON is broken.
func (d *document) next() bool {
	root := make([]places, len(d.rules.paths))
	for i := range root {
		root[i] = 1
	}
	token, ok := d.token()
	if !ok || !d.value(token, root, false) {
		return false
	}
	for len(d.levels) > 0 {
		if token, ok = d.token(); !ok {
			return false
		}
		here := &d.levels[len(d.levels)-1]
		if delim, is := token.(json.Delim); is && (delim == '}' || delim == ']') {
			d.levels = d.levels[:len(d.levels)-1]
			continue
		}
		if here.object && !here.named {
			name, _ := token.(string)
			here.name, here.named = strings.ToLower(name), true
			d.text(name)
			continue
		}
		secret := false
		if here.object && d.rules.credentials {
			_, number := token.(json.Number)
			k := kindOf(here.name)
			secret = k != harmless && !(k == several && number)
		}
		at := make([]places, len(d.rules.paths))
		for i, p := range d.rules.paths {
			index := here.index
			if here.object {
				index = -1
			}
			at[i] = p.next(here.at[i], here.name, index)
		}
		here.named = false
		here.index++
		if !d.value(token, at, secret) {
			return false
		}
	}
	return true
}

// value masks the value that begins with token.
func (d *document) value(token json.Token, at []places, secret bool) bool {
	for i, p := range d.rules.paths {
		secret = secret || p.arrived(at[i])
	}
	switch token := token.(type) {
	case json.Delim:
		if secret {
			return d.skip()
		}
		if len(d.levels) == maxDepth {
			d.broken, d.at = true, d.start
			return false
		}
		d.levels = append(d.levels, level{object: token == '{', at: at})
	case string:
		if secret && token != "" {
			d.replace(d.start, `"`+Mark+`"`)
		} else {
			d.text(token)
		}
	case json.Number:
		var cards spans
		if d.rules.credentials {
			findCards(string(token), &cards)
		}
		if secret || len(cards) > 0 {
			d.replace(d.start, `"`+Mark+`"`)
		}
	case bool:
		if secret && !d.rules.isName(at) {
			d.replace(d.start, `"`+Mark+`"`)
		}
	}
	return true
}

// isName reports whether no path leads to a value: it is masked for its name alone, which says nothing of true and
// false.
func (r *rules) isName(at []places) bool {
	for i, p := range r.paths {
		if p.arrived(at[i]) {
			return false
		}
	}
	return true
}

// skip masks an object or array as a whole, whose first token was read.
func (d *document) skip() bool {
	start := d.start
	for depth := 1; depth > 0; {
		token, ok := d.token()
		if !ok {
			d.broken, d.at = true, start
			return false
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	d.replace(start, `"`+Mark+`"`)
	return true
}

// text masks secrets within a string. A string without secrets keeps its bytes.
func (d *document) text(text string) {
	masked := d.rules.masked(text)
	if masked == text {
		return
	}
	var quoted bytes.Buffer
	to := json.NewEncoder(&quoted)
	to.SetEscapeHTML(false)
	if to.Encode(masked) == nil {
		d.replace(d.start, strings.TrimSuffix(quoted.String(), "\n"))
	}
}

// replace copies what stands before start, and writes value in the place of what stands from start up to the end of the
// token.
func (d *document) replace(start int, value string) {
	d.out = append(d.out, d.in[d.done:start]...)
	d.out = append(d.out, value...)
	d.done = d.at
}

// rest withholds what stands behind the break, because no path can be followed there. Without paths it is masked as a
// text.
func (d *document) rest() []byte {
	if len(d.rules.paths) == 0 {
		return []byte(d.rules.masked(string(d.in)))
	}
	end := max(d.at, d.done)
	if mark := len(d.in) - len(Mark); mark >= d.done && string(d.in[mark:]) == Mark { // masked before
		end = min(end, mark)
	}
	d.out = append(d.out, d.in[d.done:end]...)
	return append(d.out, Mark...)
}
