package poison

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/codec/envelope"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/seal"
)

// sealedVersion is the value of KeySealed.
const sealedVersion = "1"

func (l *Letter) markSealed(msg *message.Message) {
	if l.Sealed {
		msg.Metadata[KeySealed] = sealedVersion
	}
}

// readSealed reads what the envelope says without a key: the id of its key and, if a tight budget left the topic out,
// the topic. Open shows whether they are true.
func (l *Letter) readSealed(r reader) {
	if _, l.Sealed = r[KeySealed]; !l.Sealed {
		return
	}
	h, err := envelope.Parse(l.Original.Payload)
	l.SealKey = h.KeyID // of a damaged envelope as much as can be read
	if err == nil && l.Origin.Topic == "" && len(h.Topic) <= maxIdentity {
		l.Origin.Topic = h.Topic
	}
}

// binding says which letter it is, by what each of its forms and copies keeps.
func (l *Letter) binding() envelope.Binding {
	b := envelope.Binding{Topic: l.Origin.Topic, ID: rawID(l.Original.UUID), Redrives: l.Redrive.Count}
	if len(b.Topic) > maxIdentity { // a letter cannot carry it
		b.Topic = ""
	}
	return b
}

// Open returns the letter with the payload and the metadata that its message had before it was sealed. It returns a
// letter that is not sealed as it is. An error names the key. Nothing of the letter was changed
// then.
func (l Letter) Open(ctx context.Context, s *seal.Sealer) (Letter, error) {
	if !l.Sealed {
		return l, nil
	}
	c, err := hidden.Of(s).Open(ctx, l.binding(), l.Original.Payload)
	if err != nil {
		return l, fmt.Errorf("poison: open letter: %w", err)
	}
	original := message.NewMessageWithContext(l.Original.Context(), l.Original.UUID, c.Payload)
	original.Metadata = make(message.Metadata, len(l.Original.Metadata)+len(c.Metadata))
	maps.Copy(original.Metadata, l.Original.Metadata)
	packed := c.Metadata[KeyOriginalMetadata]
	for key, value := range c.Metadata {
		if ours[key]&byUs == 0 {
			original.Metadata[key] = value
		}
	}
	l.Original, l.Sealed, l.SealKey = original, false, ""
	l.unpack(packed)
	return l, nil
}

func sealMessage(ctx context.Context, s *seal.Sealer,
	msg *message.Message) (_ *message.Message, changed bool, err error) {
	if msg == nil {
		return nil, false, errors.New("poison: seal: the message is nil")
	}
	l := Read(msg)
	if l.Sealed {
		return reseal(ctx, s, l, msg)
	}
	producers := without(msg.Metadata, writersOfLetter(msg.Metadata))
	c := envelope.Content{Payload: msg.Payload, Metadata: make(map[string]string, len(producers))}
	sealed := message.NewMessageWithContext(msg.Context(), msg.UUID, nil)
	for key, value := range msg.Metadata {
		_, isProducers := producers[key]
		if key == KeyOriginalMetadata || isProducers && !hidden.Of(s).IsClear(key) {
			c.Metadata[key] = value
		} else {
			sealed.Metadata[key] = value
		}
	}
	sealed.Metadata[KeySealed] = sealedVersion
	as := Read(sealed)
	sealed.Payload, err = hidden.Of(s).Seal(ctx, as.binding(), c) // as Open will read it
	if err != nil {
		return nil, false, fmt.Errorf("poison: seal letter: %w", err)
	}
	return sealed, true, nil
}

func reseal(ctx context.Context, s *seal.Sealer, l Letter, msg *message.Message) (_ *message.Message, changed bool,
	err error) {
	payload, changed, err := hidden.Of(s).Reseal(ctx, l.binding(), msg.Payload)
	if err != nil {
		return nil, false, fmt.Errorf("poison: open letter: %w", err)
	}
	if !changed {
		return msg, false, nil
	}
	resealed := message.NewMessageWithContext(msg.Context(), msg.UUID, payload)
	maps.Copy(resealed.Metadata, msg.Metadata)
	return resealed, true, nil
}

// seal seals the letter, if the queue has a Sealer. Keys that fail are asked as often as a publisher.
func (q *Queue) seal(ctx context.Context, l *Letter) error {
	if q.config.Seal == nil || l.Sealed {
		return nil
	}
	waits := q.waits()
	for attempt := 1; ; attempt++ {
		sealed, err := l.seal(ctx, q.config.Seal)
		if err == nil {
			*l = sealed
			return nil
		}
		if hook := q.config.Hooks.OnPublishError; hook != nil {
			safecall.Hook(q.config.Logger, "poison.OnPublishError", func() { hook(ctx, *l, err) })
		}
		eventLetterNotSealed.Write(q.config.Logger, err,
			logging.Fields{logging.Topic: logged(l.Origin.Topic), logging.Attempt: attempt})
		if attempt >= q.config.PublishAttempts || !timing.Wait(ctx, waits.NextBackOff()) {
			return err
		}
	}
}

func (l Letter) seal(ctx context.Context, s *seal.Sealer) (Letter, error) {
	c := envelope.Content{Payload: l.Original.Payload, Metadata: make(map[string]string, len(l.Original.Metadata))}
	original := message.NewMessageWithContext(l.Original.Context(), l.Original.UUID, nil)
	for key, value := range l.Original.Metadata {
		if hidden.Of(s).IsClear(key) {
			original.Metadata[key] = value
		} else {
			c.Metadata[key] = value
		}
	}
	sealed, err := hidden.Of(s).Seal(ctx, l.binding(), c)
	if err == nil && l.parked != nil {
		l.parked, _, err = sealMessage(ctx, s, l.parked)
	}
	if err != nil {
		return l, fmt.Errorf("poison: seal letter: %w", err)
	}
	original.Payload = sealed
	l.Original, l.Sealed = original, true
	h, _ := envelope.Parse(sealed)
	l.SealKey = h.KeyID
	return l, nil
}
