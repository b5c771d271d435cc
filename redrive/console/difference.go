package console

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/internal/printable"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/console/internal/linediff"
)

// difference is what an edit does to a letter, masked.
type difference struct {
	Refused  string
	Metadata []keyDifference
	Lines    []linediff.Line
	Space    bool // the payload differs in white space alone
	Bytes    bool // the payload is no text, and differs
	Cut      bool
	Nothing  bool
}

type keyDifference struct {
	Key           string
	Before, After string
	Had, Has      bool
}

func (c *Console) differenceOf(d *campaigns.Diff) *difference {
	if d == nil {
		return nil
	}
	v := &difference{Refused: d.Refused, Cut: d.Cut}
	for _, key := range d.Metadata {
		one := keyDifference{Key: key.Key, Had: key.Before != nil, Has: key.After != nil}
		if one.Had {
			one.Before = c.config.Privacy.Metadata(key.Key, *key.Before)
		}
		if one.Has {
			one.After = c.config.Privacy.Metadata(key.Key, *key.After)
		}
		v.Metadata = append(v.Metadata, one)
	}
	switch {
	case d.Before == nil && d.After == nil, bytes.Equal(d.Before, d.After):
		v.Nothing = len(v.Metadata) == 0 && d.Refused == "" && !d.Cut
	case !utf8.Valid(whole(d.Before, d.Cut)) || !utf8.Valid(whole(d.After, d.Cut)):
		v.Bytes = true
	default:
		v.Lines = linediff.Compare(c.legible(d.Before), c.legible(d.After))
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

// legible is a payload in lines: JSON is indented.
func (c *Console) legible(payload []byte) linediff.Text {
	lines := func(b []byte) string {
		var indented bytes.Buffer
		if json.Indent(&indented, b, "", "  ") == nil {
			b = indented.Bytes()
		}
		return printable.Block(string(b))
	}
	return linediff.Text{Is: lines(payload), Shown: lines(c.config.Privacy.Payload(payload))}
}
