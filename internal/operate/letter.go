package operate

import (
	"context"
	"maps"
	"slices"

	"github.com/watermill-spillway/spillway/privacy"
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
	if err := who.may(Act); err != nil {
		return err
	}
	act := who.once(shownBy)
	done, err := d.before(ctx, act, func(e letters.Event) bool { return slices.Contains(seqs, e.Seq) })
	if done != nil || err != nil {
		return err
	}
	_, err = d.Store.Inside().Record(ctx, nil, string(letters.EventShown), act, seqs...)
	return err
}

// Hides reports whether anything of a payload is masked.
func (d *Desk) Hides(payload []byte) bool {
	return len(payload) > 0 && string(d.Masks.Payload(payload)) != string(payload)
}

// Masked returns a letter as it may be shown.
func Masked(l letters.Letter, masks *privacy.Redactor) letters.Letter {
	original := l.Original.Copy()
	original.Payload = masks.Payload(l.Original.Payload)
	original.Metadata = maps.Clone(l.Original.Metadata)
	for key, value := range original.Metadata {
		original.Metadata[key] = masks.Metadata(key, value)
	}
	original.UUID = masks.Text(original.UUID)
	l.Original = original
	f, o := &l.Failure, &l.Origin
	for _, text := range []*string{&l.DeadLetterTopic, &l.Marked.Reason, &o.Topic, &o.Handler, &o.ConsumerGroup,
		&o.Partition,
		&o.Offset, &f.Description, &f.Reason, &f.Type, &f.Stack, &f.Node} {
		*text = masks.Text(*text)
	}
	if len(o.Key) > 0 {
		o.Key = []byte(masks.Text(string(o.Key)))
	}
	f.History = append(f.History[:0:0], f.History...)
	for i := range f.History {
		f.History[i].Error = masks.Text(f.History[i].Error)
	}
	return l
}
