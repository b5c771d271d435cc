package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Codec reads payloads as texts for people, and writes edited texts as payloads again, with functions of the service.
// They are contained: a panic is an error, and time, size and the number of calls have bounds. A nil Codec reads
// nothing.
type Codec struct {
	name   string // of decode, in errors
	decode func(context.Context, letters.Letter) (text, mediaType string, err error)
	encode func(ctx context.Context, l letters.Letter, text string) ([]byte, error)
	logger watermill.LoggerAdapter
	within time.Duration
	calls  chan struct{} // those that run: one that hangs keeps its place until it returns
}

// The bounds of a call. One that heeds its context has the grace to end what it started.
const (
	codecTime  = 4 * time.Second
	codecGrace = time.Second
	codecCalls = 8
	// MaxDecoded is the most bytes of text, and of a payload that an editor writes.
	MaxDecoded = 1 << 20
	maxFailed  = 4 << 10 // bytes of why a call failed: a page shows less, masked before that
)

// NewCodec returns a Codec, or nil without decode, which errors call by name. Without encode nothing is written.
func NewCodec(name string, decode func(context.Context, letters.Letter) (text, mediaType string, err error),
	encode func(context.Context, letters.Letter, string) ([]byte, error), logger watermill.LoggerAdapter) *Codec {
	if decode == nil {
		return nil
	}
	return &Codec{name, decode, encode, logger, codecTime, make(chan struct{}, codecCalls)}
}

// Encodes reports whether an edited text can become a payload again.
func (c *Codec) Encodes() bool { return c != nil && c.encode != nil }

// DecodedData is a payload as the decoder of the service reads it, masked.
type DecodedData struct {
	MediaType string `json:"media_type,omitempty"` // of the text
	Text      string `json:"text,omitempty"`
	Masked    bool   `json:"masked,omitempty"` // some of the text is masked, so the bytes of the payload are left out
	Failed    string `json:"failed,omitempty"` // why there is no text
}

// Decoded is a payload as a text, with the text as it is without masks.
type Decoded struct {
	DecodedData
	Clear string
}

// Read reports whether there is a text.
func (d *Decoded) Read() bool { return d != nil && d.Failed == "" }

// hides reports whether some of the text is masked.
func (d *Decoded) hides() bool { return d != nil && d.Masked }

// Decoded decodes the payload of a letter, or returns nil if that is to be shown as it is. The text is masked after it
// is decoded: names and paths of values are known by then.
func (d *Desk) Decoded(ctx context.Context, l letters.Letter) *Decoded {
	if d.Codec == nil || len(l.Original.Payload) == 0 || l.Sealed || l.Status == letters.StatusErased {
		return nil
	}
	text, mediaType, err := d.Codec.text(ctx, l)
	switch {
	case err != nil:
		return &Decoded{DecodedData: DecodedData{Failed: d.Masks.Text(boundedtext.Error(err, maxFailed))}}
	case mediaType == "":
		return nil
	}
	shown := string(d.Masks.Payload([]byte(text)))
	return &Decoded{DecodedData{MediaType: mediaType, Text: shown, Masked: shown != text}, text}
}

// text is the text of a payload. Without a media type the decoder leaves the payload as it is.
func (c *Codec) text(ctx context.Context, l letters.Letter) (text, mediaType string, err error) {
	type decoded struct{ text, mediaType string }
	own := copied(l)
	got, err := bounded(ctx, c, c.name, func(ctx context.Context) (v decoded, err error) {
		v.text, v.mediaType, err = c.decode(ctx, own)
		return v, err
	})
	if err != nil || got.mediaType == "" {
		return "", "", err
	}
	mediaType, _, err = mime.ParseMediaType(got.mediaType)
	switch {
	case err != nil || len(mediaType) > 100:
		return "", "", fmt.Errorf("%s: the media type %q is none: return one such as application/json", c.name,
			boundedtext.Text(got.mediaType, 100))
	case len(got.text) > MaxDecoded:
		return "", "", fmt.Errorf("%s: the text has %d bytes, and at most %d are shown", c.name, len(got.text), MaxDecoded)
	case !utf8.ValidString(got.text):
		return "", "", errors.New(c.name + ": the text is no UTF-8")
	case (mediaType == "application/json" || strings.HasSuffix(mediaType, "+json")) && !json.Valid([]byte(got.text)):
		return "", "", fmt.Errorf("%s: the text is %s by its media type, and no JSON", c.name, mediaType)
	}
	return got.text, mediaType, nil
}

// Encode returns the payload that an edited text is, and how it reads.
func (d *Desk) Encode(ctx context.Context, l letters.Letter, text string) (payload []byte, reads *Decoded, err error) {
	own := copied(l)
	payload, err = bounded(ctx, d.Codec, "console.Config.Encode", func(ctx context.Context) ([]byte, error) {
		return d.Codec.encode(ctx, own, text)
	})
	switch {
	case err != nil:
		return nil, nil, err
	case len(payload) == 0 || len(payload) > MaxDecoded:
		return nil, nil, fmt.Errorf("console.Config.Encode: the payload has %d bytes: 1 to %d are possible", len(payload),
			MaxDecoded)
	}
	edited := copied(l)
	edited.Original.Payload = payload
	if reads = d.Decoded(ctx, edited); !reads.Read() {
		why := "the decoder leaves it as it is"
		if reads != nil {
			why = reads.Failed
		}
		return nil, nil, fmt.Errorf("console.Config.Encode: what it wrote cannot be decoded: %s", why)
	}
	return payload, reads, nil
}

// copied is a letter whose message a function may keep and change.
func copied(l letters.Letter) letters.Letter {
	l.Original = l.Original.Copy()
	l.Original.Payload = append([]byte(nil), l.Original.Payload...)
	l.Origin.Key = append([]byte(nil), l.Origin.Key...)
	l.Failure.History = append(l.Failure.History[:0:0], l.Failure.History...)
	return l
}

// bounded calls a function of the service. One that does not return in time goes on without anyone who waits.
func bounded[T any](ctx context.Context, c *Codec, name string, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	var none T
	select {
	case c.calls <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("%s: %d calls of it have not returned: let it end with its context", name, cap(c.calls))
	}
	done := make(chan result, 1)
	go func() {
		r := result{err: fmt.Errorf("%s: it ended its goroutine", name)}
		defer func() {
			<-c.calls
			done <- r
		}()
		err := safecall.Call(name, func() (err error) {
			r.value, err = f(ctx)
			return err
		})
		if r.err = err; errors.As(err, new(*classify.PanicError)) {
			logging.HookPanicked.Write(c.logger, err, logging.Fields{logging.Hook: name})
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(codecGrace):
		return none, fmt.Errorf("%s: no answer within %s", name, c.within+codecGrace)
	}
}
