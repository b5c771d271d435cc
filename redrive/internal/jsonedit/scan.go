package jsonedit

import (
	"context"
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

// step is how many bytes are read between two looks at the context.
const step = 64 << 10

// effort counts the bytes that an edit reads and writes, and ends it with its context.
type effort struct {
	ctx         context.Context
	spent, seen int
}

func (e *effort) spend(n int) error {
	if e.spent += n; e.spent-e.seen < step {
		return nil
	}
	e.seen = e.spent
	return e.ctx.Err()
}

// source is a JSON text and where its objects and arrays stand, so that each byte is looked at once at each of two
// times: when these are found, and when what holds the byte is opened.
type source struct {
	text       []byte
	containers []container // in the order of their beginnings; empty until one is opened
}

// container is an object or array. next is the index of the first container behind all that it holds.
type container struct{ from, to, next int }

// find notes the containers. The text is valid.
func (s *source) find(e *effort) error {
	if s.containers != nil {
		return nil
	}
	var open []int
	last := 0
	for i := 0; i < len(s.text); i++ {
		switch s.text[i] {
		case '"':
			i = textEnd(s.text, i) - 1
			continue
		case '{', '[':
			open = append(open, len(s.containers))
			s.containers = append(s.containers, container{from: i})
		case '}', ']':
			c := &s.containers[open[len(open)-1]]
			open, c.to, c.next = open[:len(open)-1], i+1, len(s.containers)
		default:
			continue
		}
		if err := e.spend(i - last); err != nil {
			return err
		}
		last = i
	}
	return e.spend(len(s.text) - last)
}

// space returns the first place at or behind i that is no white space.
func space(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\t' || doc[i] == '\n' || doc[i] == '\r') {
		i++
	}
	return i
}

// textEnd returns the end of the string that begins at i.
func textEnd(doc []byte, i int) int {
	for i++; doc[i] != '"'; i++ {
		if doc[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// scalarEnd returns the end of the string, number or word that begins at i.
func scalarEnd(doc []byte, i int) int {
	if doc[i] == '"' {
		return textEnd(doc, i)
	}
	for i < len(doc) && doc[i] != ',' && doc[i] != '}' && doc[i] != ']' && space(doc, i) == i {
		i++
	}
	return i
}

// unquoted is the text that a JSON string means.
func unquoted(quoted []byte) (s string) {
	_ = json.Unmarshal(quoted, &s) // it is valid
	return s
}

// quote is a key as JSON.
func quote(key string) []byte {
	text, _ := json.Marshal(key)
	return text
}
