// Package payload turns the bytes of a message into what a page shows of them: a tree of JSON, text, or lines of hex.
//
// The bytes come from strangers, and a person decides by what the page shows. So nothing is shown as what it is not:
//
//	JSON     numbers, strings and escapes are copied from the bytes, never through a float64 or a Go string. A key that
//	         stands twice is shown twice.
//	text     only what is UTF-8 without controls is taken for text by itself. What is not printable is escaped.
//	hex      all other bytes, with their offsets.
//
// Each view is bounded, in bytes, in nodes and in depth, and says when it is cut. The caller masks secrets before: half
// of a secret is not known as one.
package payload

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/internal/text/printable"
)

// Kind is a way to show bytes.
type Kind string

// The kinds. Auto is Tree for JSON, Text for text, and Hex for all other bytes.
const (
	Auto Kind = "auto"
	Tree Kind = "tree"
	Text Kind = "text"
	Hex  Kind = "hex"
)

// The bounds of a view: together with the rest of a page it stays below 60 KiB when it is compressed.
const (
	maxText = 32 << 10 // bytes of a text, and of all scalars of a tree
	maxHex  = 8 << 10  // bytes as hex
)

// Looked is how many bytes of a payload Of looks at. Of a longer payload give the first Looked bytes.
const Looked = 1 << 20

// View is what a page shows of a payload.
type View struct {
	// Kind is Tree, Text or Hex. It is empty if there are no bytes.
	Kind Kind
	// Kinds are the kinds that the payload can be shown as.
	Kinds []Kind
	// Root is the tree.
	Root *Node
	// Text is the text, printable.
	Text string
	// Lines are the lines of hex.
	Lines []Line
	// Cut reports whether the view does not show all.
	Cut bool
	// Shown is the number of bytes that a text or hex view shows. Of a tree it is the number of its nodes.
	Shown int
}

// Of returns a view of bytes. whole reports whether the bytes are all of the payload. If the payload cannot be shown as
// want, it is shown as with Auto.
func Of(p []byte, want Kind, whole bool) View {
	if len(p) == 0 && whole {
		return View{}
	}
	tree, isTree := treeOf(p, whole)
	v := View{Kinds: []Kind{Text, Hex}}
	if isTree {
		v.Kinds = []Kind{Tree, Text, Hex}
	}
	switch {
	case isTree && want != Text && want != Hex:
		v.Kind, v.Root, v.Shown, v.Cut = Tree, tree.root, tree.nodes, tree.cut || !whole
	case want == Text || want != Hex && isText(p, whole):
		v.Kind = Text
		shown := cutText(p, maxText)
		v.Text, v.Shown, v.Cut = printable.Block(string(shown)), len(shown), len(shown) < len(p) || !whole
	default:
		v.Kind = Hex
		shown := p[:min(len(p), maxHex)]
		v.Lines, v.Shown, v.Cut = lines(shown), len(shown), len(shown) < len(p) || !whole
	}
	return v
}

// isText reports whether bytes are text: UTF-8, without controls other than those of lines.
func isText(p []byte, whole bool) bool {
	if !whole { // the last character may be cut
		p = cutText(p, len(p)-1)
	}
	return utf8.Valid(p) && bytes.IndexFunc(p, func(r rune) bool {
		return unicode.IsControl(r) && !strings.ContainsRune("\n\r\t", r)
	}) < 0
}

// cutText returns at most n bytes, and cuts no character.
func cutText(p []byte, n int) []byte {
	if len(p) <= n {
		return p
	}
	for back := 0; back < utf8.UTFMax && n > 0 && !utf8.RuneStart(p[n]); back++ {
		n--
	}
	return p[:n]
}

// Line is 16 bytes as hex.
type Line struct {
	Offset, Bytes, Text string
}

const perLine = 16

func lines(p []byte) (all []Line) {
	for at := 0; at < len(p); at += perLine {
		row := p[at:min(len(p), at+perLine)]
		text := strings.Map(func(r rune) rune {
			if r < ' ' || r > '~' {
				return '.'
			}
			return r
		}, latin(row))
		all = append(all, Line{fmt.Sprintf("%08x", at), spaced(row), text})
	}
	return all
}

// latin is each byte as the character of that number.
func latin(p []byte) string {
	runes := make([]rune, len(p))
	for i, b := range p {
		runes[i] = rune(b)
	}
	return string(runes)
}

// spaced is bytes as hex, with a space after each and two after eight.
func spaced(p []byte) string {
	var b strings.Builder
	for i := range p {
		switch {
		case i == perLine/2:
			b.WriteString("  ")
		case i > 0:
			b.WriteString(" ")
		}
		b.WriteString(hex.EncodeToString(p[i : i+1]))
	}
	return b.String()
}
