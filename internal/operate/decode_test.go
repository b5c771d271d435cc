package operate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func decoding(decode func(context.Context, letters.Letter) (string, string, error)) *Desk {
	return &Desk{Codec: NewCodec("console.Config.Decode", decode, nil, watermill.NopLogger{})}
}

func binaryLetter() (l letters.Letter) {
	l.Original = message.NewMessage("1", []byte("\x00\xffsecret-1"))
	l.Original.Metadata.Set("tenant", "blue")
	return l
}

// Feature V17: what a decoder does wrong is said, in the place of its text, and reaches no one else.
func TestDecodeIsContained(t *testing.T) {
	for says, decode := range map[string]func(l letters.Letter) (string, string, error){
		"panic: on fire":          func(letters.Letter) (string, string, error) { panic("on fire") },
		"it ended its goroutine":  func(letters.Letter) (string, string, error) { runtime.Goexit(); return "", "", nil },
		"the text has 104857600 ": func(letters.Letter) (string, string, error) { return strings.Repeat("x", 100<<20), "text/plain", nil },
		"the text is no UTF-8":    func(letters.Letter) (string, string, error) { return "caf\xe9", "text/plain", nil },
		"and no JSON":             func(letters.Letter) (string, string, error) { return `{"password":"secret-1"`, "application/json", nil },
		"is none":                 func(letters.Letter) (string, string, error) { return "x", "<script>", nil },
		"no schema 7":             func(letters.Letter) (string, string, error) { return "", "", errors.New("no schema 7") },
		"[redacted]":              func(letters.Letter) (string, string, error) { return "", "", errors.New("password=secret-1") },
	} {
		l := binaryLetter()
		got := decoding(func(_ context.Context, l letters.Letter) (string, string, error) { return decode(l) }).Decoded(t.Context(), l)
		testkit.Require(t, got != nil && !got.Read() && got.Text+got.Clear == "" && strings.Contains(got.Failed, says) &&
			!strings.Contains(got.Failed, "secret-1"), "%s: %.300v", says, got)
	}
	l := binaryLetter()
	got := decoding(func(_ context.Context, own letters.Letter) (string, string, error) {
		own.Original.Payload[0], own.Original.Metadata["tenant"] = 'x', "green"
		return "text", "text/plain; charset=utf-8", nil
	}).Decoded(t.Context(), l)
	testkit.Check(t, got.Read() && got.Text == "text" && got.MediaType == "text/plain" && l.Original.Payload[0] == 0 &&
		l.Original.Metadata["tenant"] == "blue", "%+v of %+v", got, l.Original)
	got = decoding(func(context.Context, letters.Letter) (string, string, error) { return "", "", nil }).Decoded(t.Context(), l)
	testkit.Check(t, got == nil && (&Desk{}).Decoded(t.Context(), l) == nil, "a payload that is left as it is: %+v", got)
}

// Feature V17: a decoder that hangs holds up a page for 5 s. Those that hang are few, and others are told so.
func TestDecodeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		hangs := decoding(func(context.Context, letters.Letter) (string, string, error) {
			<-release
			return "late", "text/plain", nil
		})
		for i := range codecCalls + 2 {
			says := "no answer within 5s"
			if i >= codecCalls {
				says = "8 calls of it have not returned"
			}
			got := hangs.Decoded(t.Context(), binaryLetter())
			testkit.Check(t, !got.Read() && strings.Contains(got.Failed, says), "call %d: %+v", i, got)
		}
		close(release)
		synctest.Wait()
		got := hangs.Decoded(t.Context(), binaryLetter())
		testkit.Check(t, got.Read() && got.Text == "late", "after they returned: %+v", got)
		heeds := decoding(func(ctx context.Context, _ letters.Letter) (string, string, error) {
			<-ctx.Done()
			return "", "", fmt.Errorf("the registry is slow: %w", ctx.Err())
		}).Decoded(t.Context(), binaryLetter())
		testkit.Check(t, strings.Contains(heeds.Failed, "the registry is slow"), "one that heeds its context: %+v", heeds)
	})
}

// Feature V17: the text is masked after it is decoded, by names and paths. Then the bytes are for those who may act.
func TestDecodeIsMasked(t *testing.T) {
	masks := testkit.Must(privacy.New(privacy.Rules{Payload: []string{"$.customer.name"}}))
	d := decoding(func(context.Context, letters.Letter) (string, string, error) {
		return `{"password":"secret-1","customer":{"name":"Zoe"},"n":90071992547409931}`, "application/json", nil
	})
	d.Masks = masks
	l := Letter{Letter: binaryLetter(), PayloadBytes: 10}
	v := d.Data(t.Context(), Person{Name: "ann", Right: Look}, l, nil)
	testkit.Check(t, v.Decoded != nil && v.Decoded.Masked && v.Bytes() == nil && v.PayloadBytes == 10 &&
		v.Decoded.Text == `{"password":"[redacted]","customer":{"name":"[redacted]"},"n":90071992547409931}`, "%+v", v.Decoded)
	testkit.Check(t, d.Hides(l.Original.Payload, d.Decoded(t.Context(), l.Letter)), "the bytes are for everyone who may look")
	v = d.Data(t.Context(), Person{Name: "ann", Right: LookWithoutPayload}, l, nil)
	testkit.Check(t, v.Decoded == nil && v.Bytes() == nil, "without the right to look: %+v", v)
	d.Masks = privacy.None()
	v = d.Data(t.Context(), Person{Name: "ann", Right: Look}, l, nil)
	testkit.Check(t, strings.Contains(v.Decoded.Text, "secret-1") && len(v.Bytes()) == 10, "without masks: %+v", v)
}
