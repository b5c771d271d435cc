package operate

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate/linediff"
	"github.com/watermill-spillway/spillway/internal/text/printable"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
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

// EditFields say how messages change on their way, as a person writes it.
type EditFields struct {
	Patch      string   // a JSON merge patch {…}, or a JSON patch […]
	Set, Unset []string // metadata: key=value, key
	Func       string   // that the service's workers know
}

// ParseEdit reads an edit. Without a field there is none.
func ParseEdit(f EditFields) (*campaigns.Edit, error) {
	set, err := Pairs("set", f.Set)
	if err != nil {
		return nil, err
	}
	e := &campaigns.Edit{Func: f.Func, Unset: Filled(f.Unset), Set: set}
	if patch := bytes.TrimSpace([]byte(f.Patch)); len(patch) > 0 {
		switch {
		case !json.Valid(patch) || patch[0] != '{' && patch[0] != '[':
			return nil, wrong("edit", "is no patch: use a merge patch such as {\"currency\":\"EUR\"}, or a JSON patch such as "+
				"[{\"op\":\"remove\",\"path\":\"/card\"}]")
		case patch[0] == '[':
			e.Patch = patch
		default:
			e.Merge = patch
		}
	}
	if e.Func == "" && len(e.Unset)+len(e.Set)+len(e.Patch)+len(e.Merge) == 0 {
		return nil, nil
	}
	if err := e.Validate(); err != nil {
		field := "edit"
		switch about := err.Error(); {
		case strings.Contains(about, "metadata") && len(e.Set) > 0:
			field = "set"
		case strings.Contains(about, "metadata"):
			field = "unset"
		}
		return nil, wrong(field, "cannot be: %v", err)
	}
	return e, nil
}
