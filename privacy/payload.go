package privacy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
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

// path is a JSON path: what leads from a document to the values that it names.
type path []step

// step leads from a value to values in it.
type step struct {
	deep  bool   // at any depth below
	any   bool   // each name and index
	name  string // in lower case
	index int    // if name is empty and any is false
}

// maxSteps is the number of steps that a set of places has room for.
const maxSteps = 31

var errPath = errors.New("give a path such as $.card.number, $..password, $.users[*].name, $.rows[0] or $['last name']")

func parsePath(text string) (p path, err error) {
	rest, ok := strings.CutPrefix(text, "$")
	if !ok {
		return nil, errPath
	}
	for rest != "" {
		var s step
		s.deep = strings.HasPrefix(rest, "..")
		switch {
		case s.deep:
			rest = rest[2:]
		case rest[0] == '.':
			rest = rest[1:]
		case rest[0] != '[':
			return nil, errPath
		}
		if strings.HasPrefix(rest, "[") {
			rest, err = s.bracket(rest)
		} else {
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			s.name, rest = rest[:end], rest[end:]
			if s.name == "" || strings.ContainsAny(s.name, `]?@()'"`) {
				return nil, errPath
			}
			if s.name == "*" {
				s.any, s.name = true, ""
			}
		}
		if err != nil {
			return nil, err
		}
		s.name = strings.ToLower(s.name)
		p = append(p, s)
	}
	if len(p) > maxSteps {
		return nil, errors.New("the path has " + strconv.Itoa(len(p)) + " steps: give at most " +
			strconv.Itoa(maxSteps))
	}
	return p, nil
}

// bracket reads [*], [0] or ['name'], and returns what follows.
func (s *step) bracket(rest string) (string, error) {
	if len(rest) > 2 && isQuote(rest[1]) {
		end := strings.IndexByte(rest[2:], rest[1])
		if end < 1 || !strings.HasPrefix(rest[2+end+1:], "]") {
			return "", errPath
		}
		s.name = rest[2 : 2+end]
		return rest[2+end+2:], nil
	}
	end := strings.IndexByte(rest, ']')
	if end < 0 {
		return "", errPath
	}
	if rest[1:end] == "*" {
		s.any = true
		return rest[end+1:], nil
	}
	n, err := strconv.ParseUint(rest[1:end], 10, 31)
	if err != nil {
		return "", errPath
	}
	s.index = int(n)
	return rest[end+1:], nil
}

// places are the steps of a path that may be taken next, a bit each. The bit behind the last step says that the path
// has arrived.
type places uint32

func (p path) arrived(at places) bool { return at&(1<<len(p)) != 0 }

// next returns where a path is after the name, or the index if name is empty and the value is in an array.
func (p path) next(at places, name string, index int) (to places) {
	for i, s := range p {
		if at&(1<<i) == 0 {
			continue
		}
		if s.deep {
			to |= 1 << i
		}
		if s.any || index < 0 && s.name != "" && s.name == name || index >= 0 && s.name == "" && s.index == index {
			to |= 1 << (i + 1)
		}
	}
	return to
}
