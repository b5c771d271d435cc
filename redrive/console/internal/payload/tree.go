package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/watermill-spillway/spillway/internal/text/printable"
)

const (
	maxNodes  = 1500
	maxDepth  = 64
	maxScalar = 2 << 10 // bytes of one string or number
)

// Node is a value of JSON, as a page shows it.
type Node struct {
	// Key is the key of a member, between quotes as in the bytes. It is empty in an array and for the root.
	Key string
	// Kind is object, array, string, number, bool or null: it is the class of the value's style.
	Kind string
	// Text is a scalar as it stands in the bytes, printable.
	Text string
	// Members are what an object or array contains, as far as it is shown.
	Members []*Node
	// Count is how many members an object or array has. It is that of the shown ones if More is set.
	Count int
	// More reports whether there are members that are not shown.
	More bool
	// Open reports whether the members are shown at first.
	Open bool
}

// Container reports whether the node is an object or an array.
func (n *Node) Container() bool { return n.Kind == "object" || n.Kind == "array" }

// Brackets are what a container stands between.
func (n *Node) Brackets() string {
	if n.Kind == "object" {
		return "{}"
	}
	return "[]"
}

type tree struct {
	root  *Node
	nodes int
	cut   bool

	in    []byte
	from  *json.Decoder
	texts int // bytes of the scalars so far
	path  []*level
}

type level struct {
	node   *Node // nil if it is not shown
	object bool
	key    string
	keyed  bool
}

// treeOf reads one value of JSON. It reports false for all other bytes. If they are not whole, a beginning of JSON will
// do.
func treeOf(p []byte, whole bool) (t *tree, ok bool) {
	trimmed := bytes.TrimLeft(p, " \t\r\n")
	if len(trimmed) == 0 || strings.IndexByte("{[\"-0123456789tfn", trimmed[0]) < 0 {
		return nil, false
	}
	if !whole && strings.IndexByte("{[", trimmed[0]) < 0 {
		return nil, false
	}
	t = &tree{in: p, from: json.NewDecoder(bytes.NewReader(p))}
	t.from.UseNumber()
	at := 0
	for {
		token, err := t.from.Token()
		if err != nil {
			cutShort := errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || int(t.from.InputOffset()) >= len(p)-1
			if whole || t.root == nil || !cutShort {
				return nil, false
			}
			t.cut = true
			for _, l := range t.path {
				if l.node != nil {
					l.node.More = true
				}
			}
			return t, true
		}
		start := at
		at = int(t.from.InputOffset())
		for start < at && strings.IndexByte(" \t\r\n,:", p[start]) >= 0 {
			start++
		}
		t.add(token, string(p[start:at]))
		if len(t.path) == 0 {
			break
		}
	}
	if whole && len(bytes.TrimSpace(p[at:])) > 0 { // several values, such as one a line
		return nil, false
	}
	return t, true
}

// add takes the next token, and how it stands in the bytes.
func (t *tree) add(token json.Token, raw string) {
	var here *level
	if len(t.path) > 0 {
		here = t.path[len(t.path)-1]
	}
	if delim, is := token.(json.Delim); is && (delim == '}' || delim == ']') {
		t.path = t.path[:len(t.path)-1]
		return
	}
	if here != nil && here.object && !here.keyed {
		here.key, here.keyed = raw, true
		return
	}
	node := &Node{Kind: kindOf(token)}
	if here != nil {
		node.Key, here.key, here.keyed = t.scalar(here.key), "", false
	}
	if !node.Container() {
		node.Text = t.scalar(raw)
	}
	shown := t.hang(here, node)
	if delim, is := token.(json.Delim); is {
		l := &level{object: delim == '{'}
		if shown {
			l.node = node
		}
		t.path = append(t.path, l)
	}
}

// hang puts a node into its place. It reports whether there was room for it.
func (t *tree) hang(parent *level, node *Node) bool {
	if parent == nil {
		t.root, t.nodes, node.Open = node, 1, true
		return true
	}
	if parent.node == nil {
		return false
	}
	parent.node.Count++
	if t.nodes >= maxNodes || len(t.path) >= maxDepth || t.texts > maxText {
		parent.node.More, t.cut = true, true
		return false
	}
	t.nodes++
	node.Open = len(t.path) < 3
	parent.node.Members = append(parent.node.Members, node)
	return true
}

// scalar is a key or a value as it stands in the bytes, up to a bound.
func (t *tree) scalar(raw string) string {
	if len(raw) > maxScalar {
		raw = string(cutText([]byte(raw), maxScalar)) + "…"
		t.cut = true
	}
	if t.texts <= maxText { // what is behind is not shown
		t.texts += len(raw)
	}
	return printable.Text(raw)
}

func kindOf(token json.Token) string {
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return "object"
		}
		return "array"
	case string:
		return "string"
	case json.Number:
		return "number"
	case bool:
		return "bool"
	}
	return "null"
}
