package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate/linediff"
	"github.com/watermill-spillway/spillway/internal/operate/printable"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Letter is a letter, opened if it was sealed and the keys are there.
type Letter struct {
	letters.Letter
	Key    string // that it is sealed with
	Closed error  // why it cannot be opened
	// PayloadBytes is how long the payload is, before masks.
	PayloadBytes int
}

// WhyClosed says why the letter cannot be opened, if it cannot.
func (l Letter) WhyClosed() string {
	if l.Closed == nil {
		return ""
	}
	return l.Closed.Error()
}

// Letter returns a letter by its Seq.
func (d *Desk) Letter(ctx context.Context, seq int64) (Letter, error) {
	l, err := d.Store.Get(ctx, seq)
	if err != nil {
		return Letter{}, err
	}
	return d.Open(ctx, l)
}

// Open opens a letter. One that does not open has no payload, and says why.
func (d *Desk) Open(ctx context.Context, l letters.Letter) (Letter, error) {
	if !l.Sealed {
		return Letter{Letter: l, PayloadBytes: len(l.Original.Payload)}, nil
	}
	key := l.SealKey
	opened, err := d.Store.Open(ctx, l)
	switch {
	case ctx.Err() != nil:
		return Letter{}, context.Cause(ctx)
	case err == nil:
		l.Letter = opened
	default:
		original := l.Original.Copy()
		original.Payload = nil
		l.Original = original
	}
	return Letter{l, key, err, len(l.Original.Payload)}, nil
}

// Show records that a person sees letters without masks, and why. The letters may be shown if it returns no error.
func (d *Desk) Show(ctx context.Context, who Person, seqs ...int64) error {
	if err := who.allowed(Act); err != nil {
		return err
	}
	act := who.once(shownBy)
	done, err := d.before(ctx, act, func(e letters.Event) bool { return slices.Contains(seqs, e.Seq) })
	if done != nil || err != nil {
		return err
	}
	_, err = hidden.Of(d.Store).Record(ctx, nil, letters.EventShown, act, seqs...)
	return err
}

// Hides reports whether anything of a payload is masked, in its bytes or in what is decoded of it.
func (d *Desk) Hides(payload []byte, decoded *Decoded) bool {
	return decoded.hides() || len(payload) > 0 && string(d.Masks.Payload(payload)) != string(payload)
}

// Difference is what an edit does to a letter, masked.
type Difference struct {
	Refused  string
	Metadata []inside.KeyDiff // of each key its value before and after, if it has one
	Lines    []linediff.Line
	Space    bool // the payload differs in white space alone
	Bytes    bool // the payload is no text, and differs
	Cut      bool
	Nothing  bool
	Withheld string // why the lines are not shown
}

// DifferenceOf is a difference as it may be shown, or nil.
func DifferenceOf(d *inside.Diff, masks *privacy.Redactor) *Difference {
	if d == nil {
		return nil
	}
	m := d.Masked(masks)
	v := &Difference{Refused: m.Refused, Metadata: m.Metadata, Cut: d.Cut, Withheld: m.Withheld}
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

// Reads replaces the lines by those of the decoded payload, before and after.
func (d *Difference) Reads(before, after *Decoded) {
	d.Bytes, d.Cut, d.Withheld = false, false, ""
	d.Lines = linediff.Compare(legible([]byte(before.Clear), []byte(before.Text)),
		legible([]byte(after.Clear), []byte(after.Text)))
	d.Space = len(d.Lines) == 0
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
	if lines, ok := printable.Indent(payload); ok {
		payload = lines
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
