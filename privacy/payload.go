package privacy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// maxDepth bounds how deep JSON is looked into. What is deeper is not shown.
const maxDepth = 512

// payload returns p as it may be shown.
func (r *rules) payload(p []byte) []byte {
	trimmed := bytes.TrimLeft(p, " \t\r\n")
	if len(trimmed) == 0 || strings.IndexByte(`{["`, trimmed[0]) < 0 || bytes.HasPrefix(trimmed, []byte(Mark)) {
		masked := r.masked(string(p))
		if masked != string(p) && json.Valid(p) { // a card number alone
			masked = `"` + Mark + `"`
		}
		return []byte(masked)
	}
	d := &document{rules: r, in: p, from: json.NewDecoder(bytes.NewReader(p))}
	d.from.UseNumber()
	root := make([]places, len(r.paths))
	for i := range root {
		root[i] = 1
	}
	for d.from.More() { // several documents may follow each other, such as one a line
		if d.value(root, harmless, 0) != nil {
			return d.rest()
		}
	}
	if _, err := d.token(); err != io.EOF {
		return d.rest()
	}
	return append(d.out, p[d.done:]...)
}

// document walks through JSON token by token, and copies what may be shown.
type document struct {
	rules   *rules
	in, out []byte
	from    *json.Decoder
	done    int // what of in is copied, or masked
	at      int // the end of the latest token
	start   int // its beginning
}

// token reads the next token.
func (d *document) token() (json.Token, error) {
	token, err := d.from.Token()
	if err != nil {
		return nil, err
	}
	d.start, d.at = d.at, int(d.from.InputOffset())
	for d.start < d.at && strings.IndexByte(" \t\r\n,:", d.in[d.start]) >= 0 {
		d.start++
	}
	return token, nil
}

var errDeep = errors.New("the JSON is too deep")

// children masks what is in the object or array that was opened. Depth is how many are open.
func (d *document) children(object bool, at []places, depth int) error {
	if depth > maxDepth {
		d.at = d.start
		return errDeep
	}
	for index := 0; d.from.More(); index++ {
		name, k := "", harmless
		if object {
			key, err := d.token()
			if err != nil {
				return err
			}
			name, _ = key.(string)
			d.text(name)
			index = -1
			if d.rules.credentials {
				k = kindOf(name)
			}
			name = strings.ToLower(name)
		}
		within := make([]places, len(at))
		for i, p := range d.rules.paths {
			within[i] = p.next(at[i], name, index)
		}
		if err := d.value(within, k, depth); err != nil {
			return err
		}
	}
	_, err := d.token() // the end
	return err
}

// value masks the next value, whose name is of kind k.
func (d *document) value(at []places, k kind, depth int) error {
	named := false
	for i, p := range d.rules.paths {
		named = named || p.arrived(at[i])
	}
	if named || k != harmless {
		return d.whole(named, k)
	}
	token, err := d.token()
	if err != nil {
		return err
	}
	switch token := token.(type) {
	case json.Delim:
		return d.children(token == '{', at, depth+1)
	case string:
		d.text(token)
	case json.Number:
		var cards spans
		if d.rules.credentials {
			findCards(string(token), &cards)
		}
		if len(cards) > 0 {
			d.replace(d.start, `"`+Mark+`"`)
		}
	}
	return nil
}

// whole masks the next value as a whole. The name of a secret says nothing of true and false.
func (d *document) whole(named bool, k kind) error {
	var value json.RawMessage
	if err := d.from.Decode(&value); err != nil {
		return err
	}
	d.at = int(d.from.InputOffset())
	switch first := value[0]; {
	case first == 'n' || string(value) == `""`:
	case !named && (first == 't' || first == 'f' || k == several && first != '{' && first != '[' && first != '"'):
	default:
		d.replace(d.at-len(value), `"`+Mark+`"`)
	}
	return nil
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

// stepOf is a step at the beginning of a path: .name, ..name, [*], [0], ['name'].
var stepOf = regexp.MustCompile(`^(\.{0,2})(?:\[(\*|\d+|'[^']+'|"[^"]+")\]|([^.\[\]?@()'"]+))`)

func parsePath(text string) (p path, err error) {
	rest, ok := strings.CutPrefix(text, "$")
	if !ok {
		return nil, errPath
	}
	for rest != "" {
		m := stepOf.FindStringSubmatch(rest)
		if m == nil || m[1] == "" && m[3] != "" {
			return nil, errPath
		}
		s, in := step{deep: m[1] == "..", name: strings.ToLower(m[3])}, m[2]
		switch {
		case in == "*" || m[3] == "*":
			s.any, s.name = true, ""
		case in != "" && isDigit(in[0]):
			if s.index, err = strconv.Atoi(in); err != nil {
				return nil, errPath
			}
		case in != "":
			s.name = strings.ToLower(in[1 : len(in)-1])
		}
		p, rest = append(p, s), rest[len(m[0]):]
	}
	if len(p) > maxSteps {
		return nil, fmt.Errorf("the path has %d steps: give at most %d", len(p), maxSteps)
	}
	return p, nil
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
