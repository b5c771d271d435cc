package jsonedit

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrNotJSON is the error of a document that is no JSON text in UTF-8.
var ErrNotJSON = errors.New("the document is not JSON in UTF-8")

func valid(doc []byte) error {
	if !utf8.Valid(doc) {
		return fmt.Errorf("%w: it has bytes that are not UTF-8", ErrNotJSON)
	}
	if !json.Valid(doc) {
		return ErrNotJSON
	}
	return nil
}

// span is where a value, or a member of an object, stands in a document.
type span struct{ from, to int }

// member is a member of an object or an element of an array.
type member struct {
	key   string // of an object
	whole span   // with the key
	value span
}

// space returns the first place at or behind i that is no white space.
func space(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\t' || doc[i] == '\n' || doc[i] == '\r') {
		i++
	}
	return i
}

// text returns the end of the string that begins at i.
func text(doc []byte, i int) int {
	for i++; doc[i] != '"'; i++ {
		if doc[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// value returns the end of the value that begins at i. The document is valid.
func value(doc []byte, i int) int {
	switch doc[i] {
	case '"':
		return text(doc, i)
	case '{', '[':
		for depth := 0; ; i++ {
			switch doc[i] {
			case '"':
				i = text(doc, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	for i < len(doc) && doc[i] != ',' && doc[i] != '}' && doc[i] != ']' && doc[i] != ' ' && doc[i] != '\t' && doc[i] != '\n' && doc[i] != '\r' {
		i++
	}
	return i
}

// root is the value of the document.
func root(doc []byte) span {
	from := space(doc, 0)
	return span{from, value(doc, from)}
}

// members are the members or elements of the value at s. A value that is neither an object nor an array has none.
func members(doc []byte, s span) (all []member) {
	object := isObject(doc, s)
	if !object && !isArray(doc, s) {
		return nil
	}
	for i := space(doc, s.from+1); i < s.to-1; i = space(doc, i+1) {
		m := member{whole: span{from: i}}
		if object {
			end := text(doc, i)
			_ = json.Unmarshal(doc[i:end], &m.key) // it is valid
			i = space(doc, space(doc, end)+1)
		}
		m.value = span{i, value(doc, i)}
		m.whole.to = m.value.to
		all = append(all, m)
		if i = space(doc, m.value.to); doc[i] != ',' {
			break
		}
	}
	return all
}

func isObject(doc []byte, s span) bool { return doc[s.from] == '{' }
func isArray(doc []byte, s span) bool  { return doc[s.from] == '[' }

// named are the members with a key. There may be several: JSON does not forbid it.
func named(doc []byte, s span, key string) (found []member) {
	for _, m := range members(doc, s) {
		if m.key == key {
			found = append(found, m)
		}
	}
	return found
}

// splice returns the document with the bytes at s replaced.
func splice(doc []byte, s span, with []byte) []byte {
	out := make([]byte, 0, len(doc)-(s.to-s.from)+len(with))
	out = append(out, doc[:s.from]...)
	out = append(out, with...)
	return append(out, doc[s.to:]...)
}

// quote is a key as JSON.
func quote(key string) []byte {
	text, _ := json.Marshal(key)
	return text
}
