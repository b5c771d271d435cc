package campaigns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/internal/jsonedit"
)

const (
	maxPatch = 256 << 10 // bytes
	maxKeys  = 100       // of metadata
	maxKey   = 1 << 10   // bytes of a key
	maxValue = 8 << 10   // bytes of a value
)

// Edit changes messages on their way back. The letters in the store stay as they are. What is set is done in the order
// of the fields. Merge and Patch work on the bytes of a JSON payload: what they do not touch stays as it is, numbers of
// any length too. They refuse a letter whose payload is no JSON in UTF-8. A refused letter waits as before.
type Edit struct {
	// Payload replaces the whole payload. It must be text in UTF-8, of at most 256 KiB, and Request.Seqs must name one
	// letter. Default: nil, the payload stays.
	Payload *string `json:"payload,omitempty"`
	// PayloadBytes are a Payload that is no text, such as what console.Config.Encode wrote. In JSON they are base64.
	// Default: none.
	PayloadBytes []byte `json:"payload_b64,omitempty"`
	// Merge is a JSON merge patch (RFC 7396), such as {"currency":"EUR"}, of at most 1000 keys.
	Merge json.RawMessage `json:"merge,omitempty"`
	// Patch is a JSON patch (RFC 6902) of at most 1000 operations. An operation that fails, such as a test, refuses the
	// letter.
	Patch json.RawMessage `json:"patch,omitempty"`
	// Set sets metadata. Spillway's own keys are refused.
	Set map[string]string `json:"set,omitempty"`
	// Unset removes metadata. Spillway's own keys are refused.
	Unset []string `json:"unset,omitempty"`
	// Func is the name of a function in Config.Edits.
	Func string `json:"func,omitempty"`
}

// Validate returns an error that says what no message can be edited by.
func (e *Edit) Validate() error {
	switch {
	case !e.replaces() && len(e.Merge) == 0 && len(e.Patch) == 0 && len(e.Set) == 0 && len(e.Unset) == 0 &&
		e.Func == "":
		return errors.New("the edit changes nothing: set a field, or leave the edit out")
	case e.Payload != nil && len(e.PayloadBytes) > 0:
		return errors.New("payload and payload_b64 are both set: set one")
	case e.size() > maxPatch:
		return fmt.Errorf("payload, merge and patch have %d bytes, at most %d are possible", e.size(), maxPatch)
	case e.Payload != nil && !utf8.ValidString(*e.Payload):
		return errors.New("payload is no UTF-8: use payload_b64")
	case len(e.Set)+len(e.Unset) > maxKeys:
		return fmt.Errorf("set and unset have %d keys, at most %d are possible", len(e.Set)+len(e.Unset), maxKeys)
	}
	if len(e.Merge) > 0 {
		if err := jsonedit.CheckMerge(e.Merge); err != nil {
			return fmt.Errorf("merge: %w", err)
		}
	}
	if len(e.Patch) > 0 {
		if err := jsonedit.CheckPatch(e.Patch); err != nil {
			return fmt.Errorf("patch: %w", err)
		}
	}
	for _, key := range slices.Concat(slices.Sorted(maps.Keys(e.Set)), e.Unset) {
		if key == "" || len(key) > maxKey || !utf8.ValidString(key) {
			return fmt.Errorf("the metadata key %q must be text of 1 to %d bytes", boundedtext.Text(key, 100), maxKey)
		}
		if reserved(key) {
			return fmt.Errorf("the metadata key %q is Spillway's own: leave it out; a redrive sets it",
				boundedtext.Text(key, 100))
		}
		if value := e.Set[key]; len(value) > maxValue || !utf8.ValidString(value) {
			return fmt.Errorf("the metadata value of %q must be text of at most %d bytes", boundedtext.Text(key, 100), maxValue)
		}
	}
	return nil
}

// replaces reports whether the edit has a whole payload.
func (e *Edit) replaces() bool { return e.Payload != nil || len(e.PayloadBytes) > 0 }

// size is what the edit has of payloads.
func (e *Edit) size() int {
	n := len(e.Merge) + len(e.Patch) + len(e.PayloadBytes)
	if e.Payload != nil {
		n += len(*e.Payload)
	}
	return n
}

// reserved reports whether a metadata key is not the producer's.
func reserved(key string) bool {
	return len(inside.Poison.ProducerMetadata(message.Metadata{key: "x"})) == 0
}

// apply changes msg, whose payload and metadata are its own.
func (e *Edit) apply(msg *message.Message, funcs map[string]func(*message.Message) error) (err error) {
	payload := []byte(msg.Payload)
	if e.Payload != nil {
		payload = []byte(*e.Payload)
	}
	if len(e.PayloadBytes) > 0 {
		payload = slices.Clone(e.PayloadBytes)
	}
	if len(e.Merge) > 0 {
		if payload, err = jsonedit.Merge(payload, e.Merge); err != nil {
			return fmt.Errorf("merge: %w", err)
		}
	}
	if len(e.Patch) > 0 {
		if payload, err = jsonedit.Patch(payload, e.Patch); err != nil {
			return fmt.Errorf("patch: %w", err)
		}
	}
	msg.Payload = payload
	maps.Copy(msg.Metadata, e.Set)
	for _, key := range e.Unset {
		delete(msg.Metadata, key)
	}
	if e.Func == "" {
		return nil
	}
	f := funcs[e.Func]
	if f == nil {
		return fmt.Errorf("no function %q: set Config.Edits", boundedtext.Text(e.Func, 100))
	}
	if err := safecall.Call("campaigns.Edits", func() error { return f(msg) }); err != nil {
		return err
	}
	for key := range msg.Metadata {
		if reserved(key) {
			return fmt.Errorf("the function %q sets the metadata key %q, which is Spillway's own", boundedtext.Text(e.Func, 100),
				boundedtext.Text(key, 100))
		}
	}
	return nil
}

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
