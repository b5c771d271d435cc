package campaigns

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/privacy"
)

// difference is what an edit did to a message, so that it can be done once more to the masked message.
type difference struct {
	inside.Diff
	edit  *Edit
	funcs map[string]func(*message.Message) error
	of    *message.Message
	after *message.Message
}

const (
	maxDiff   = 64 << 10  // bytes of Before, and of After
	maxMasked = 256 << 10 // bytes of a payload that Masked edits once more
)

// diff is what the edit does to a message, which stays as it is.
func (e *Edit) diff(ctx context.Context, msg *message.Message,
	funcs map[string]func(*message.Message) error) inside.Diff {
	after, err := e.edited(ctx, msg, funcs)
	if err != nil {
		return refusedEdit(boundedtext.Error(err, maxText))
	}
	d := &difference{edit: e, funcs: funcs, of: msg, after: after}
	if string(msg.Payload) != string(after.Payload) {
		d.Cut = len(msg.Payload) > maxDiff || len(after.Payload) > maxDiff
		d.Before, d.After = begin(msg.Payload), begin(after.Payload)
	}
	keys := maps.Clone(map[string]string(msg.Metadata))
	if keys == nil {
		keys = map[string]string{}
	}
	maps.Copy(keys, after.Metadata)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		was, had := msg.Metadata[key]
		is, has := after.Metadata[key]
		if had == has && was == is {
			continue
		}
		k := inside.KeyDiff{Key: key}
		if had {
			k.Before = &was
		}
		if has {
			k.After = &is
		}
		d.Metadata = append(d.Metadata, k)
	}
	d.Mask = d.masked
	return d.Diff
}

// refusedEdit says why an edit does not fit.
func refusedEdit(why string) inside.Diff {
	return inside.Diff{Refused: why, Mask: func(r *privacy.Redactor) *inside.Diff { return &inside.Diff{Refused: r.Text(why)} }}
}

func begin(payload []byte) []byte { return payload[:min(len(payload), maxDiff)] }

// masked returns the difference as it may be shown. A value that r masks before the edit is masked after it too,
// wherever the edit puts it: the edit is done to the masked message, and what comes of that is masked again. Withheld
// says why, if that cannot be done.
func (d *difference) masked(r *privacy.Redactor) *inside.Diff {
	m := &inside.Diff{Cut: d.Cut, Metadata: slices.Clone(d.Metadata)}
	values := map[string]string(d.after.Metadata)
	switch {
	case d.Before == nil && d.After == nil && d.edit.Func == "":
	case !d.moves() || r == privacy.None():
		m.Before, m.After = r.Payload(d.Before), r.Payload(d.After)
	case max(len(d.of.Payload), len(d.after.Payload)) > maxMasked:
		m.Withheld = fmt.Sprintf("values may be masked, and the payload has more than %d bytes", maxMasked)
	default:
		was := masked(r, d.of)
		is, err := d.edit.edited(context.Background(), was, d.funcs) // bounded by maxMasked
		switch {
		case err != nil:
			m.Withheld = "the edit needs values that are masked"
		case d.edit.Func != "" && !was.Equals(d.of) && !masked(r, is).Equals(masked(r, d.after)):
			m.Withheld = "the function works with values that are masked"
		default:
			is = masked(r, is)
			values = is.Metadata
			if d.Before != nil || d.After != nil {
				m.Before, m.After = begin(was.Payload), begin(is.Payload)
			}
		}
	}
	if m.Withheld != "" && d.edit.Func != "" {
		values = nil
	}
	for i := range m.Metadata {
		k := &m.Metadata[i]
		if k.Before != nil {
			was := r.Metadata(k.Key, *k.Before)
			k.Before = &was
		}
		if k.After != nil {
			is := privacy.Mark
			if value, ok := values[k.Key]; ok {
				is = r.Metadata(k.Key, value)
			}
			k.After = &is
		}
	}
	return m
}

// moves reports whether the edit can put a value of the message to another place.
func (d *difference) moves() bool { return len(d.edit.Patch) > 0 || d.edit.Func != "" }

func masked(r *privacy.Redactor, msg *message.Message) *message.Message {
	m := message.NewMessage(msg.UUID, r.Payload(msg.Payload))
	for key, value := range msg.Metadata {
		m.Metadata[key] = r.Metadata(key, value)
	}
	return m
}
