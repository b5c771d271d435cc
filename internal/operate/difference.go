package operate

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate/linediff"
	"github.com/watermill-spillway/spillway/internal/text/printable"
	"github.com/watermill-spillway/spillway/privacy"
)

// Difference is what an edit does to a letter, masked.
type Difference struct {
	Refused  string
	Metadata []KeyDifference
	Lines    []linediff.Line
	Space    bool // the payload differs in white space alone
	Bytes    bool // the payload is no text, and differs
	Cut      bool
	Nothing  bool
	Withheld string // why the lines are not shown
}

// KeyDifference is what an edit does to a key of metadata.
type KeyDifference struct {
	Key           string
	Before, After string
	Had, Has      bool
}

// DifferenceOf is a difference as it may be shown, or nil.
func DifferenceOf(d *inside.Diff, masks *privacy.Redactor) *Difference {
	if d == nil {
		return nil
	}
	m := d.Masked(masks)
	v := &Difference{Refused: m.Refused, Cut: d.Cut, Withheld: m.Withheld}
	for _, key := range m.Metadata {
		one := KeyDifference{Key: key.Key, Had: key.Before != nil, Has: key.After != nil}
		if one.Had {
			one.Before = *key.Before
		}
		if one.Has {
			one.After = *key.After
		}
		v.Metadata = append(v.Metadata, one)
	}
	switch {
	case m.Withheld != "":
		v.Cut = false
	case d.Before == nil && d.After == nil, bytes.Equal(d.Before, d.After):
		v.Nothing = len(v.Metadata) == 0 && d.Refused == "" && !d.Cut
	case !utf8.Valid(whole(d.Before, d.Cut)) || !utf8.Valid(whole(d.After, d.Cut)):
		v.Bytes = true
	default:
		v.Lines = linediff.Compare(legible(d.Before, m.Before), legible(d.After, m.After))
		v.Space = len(v.Lines) == 0
	}
	return v
}

// whole is a text without the character that a cut went through.
func whole(text []byte, cut bool) []byte {
	for i := 0; cut && i < utf8.UTFMax && len(text) > 0 && !utf8.Valid(text[max(0, len(text)-utf8.UTFMax):]); i++ {
		text = text[:len(text)-1]
	}
	return text
}

// legible is a payload in lines, and how it is shown: JSON is indented.
func legible(payload, masked []byte) linediff.Text {
	return linediff.Text{Is: indented(payload), Shown: indented(masked)}
}

func indented(payload []byte) string {
	var lines bytes.Buffer
	if json.Indent(&lines, payload, "", "  ") == nil {
		payload = lines.Bytes()
	}
	return printable.Block(string(payload))
}
