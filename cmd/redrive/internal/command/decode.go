package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/pflag"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func (a *app) decodeFlag(f *pflag.FlagSet) {
	f.StringVar(&a.decode, "decode", "", "program that writes a payload as a text for people")
}

func (a *app) checkDecode() error {
	if a.decode == "" {
		return nil
	}
	if a.settings.url != "" {
		return wrong("--decode is for a database: over --url the console decodes, by its Config.Decode; leave it out")
	}
	if _, err := exec.LookPath(a.decode); err != nil {
		return wrong("--decode is %q: name a program, without arguments: %w", a.decode, err)
	}
	return nil
}

// decoder decodes with the program of --decode.
func (a *app) decoder() func(context.Context, letters.Letter) (string, string, error) {
	if a.decode == "" {
		return nil
	}
	return func(ctx context.Context, l letters.Letter) (string, string, error) {
		text, err := decodedBy(ctx, a.decode, l)
		if err != nil {
			return "", "", fmt.Errorf("--decode %q: %w", a.decode, err)
		}
		if json.Valid(text) {
			return string(text), "application/json", nil
		}
		return string(text), "text/plain", nil
	}
}

// decodedBy is what the program writes when it reads the payload. The program and its children end with ctx.
func decodedBy(ctx context.Context, program string, l letters.Letter) ([]byte, error) {
	about, err := json.Marshal(map[string]any{"id": l.Original.UUID, "topic": l.Origin.Topic, "handler": l.Origin.Handler,
		"metadata": l.Original.Metadata})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	out, said := &boundedBuffer{most: operate.MaxDecoded, full: stop}, &boundedBuffer{most: 1 << 10}
	run := exec.CommandContext(ctx, program)
	run.Stdin, run.Stdout, run.Stderr = bytes.NewReader(l.Original.Payload), out, said
	run.Env = append(os.Environ(), "SPILLWAY_MESSAGE="+string(about))
	run.WaitDelay = 100 * time.Millisecond
	together(run)
	switch err := run.Run(); {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.kept))
	}
	return out.kept, nil
}

// boundedBuffer keeps the beginning of what is written. It embeds no bytes.Buffer, whose ReadFrom knows no bound.
type boundedBuffer struct {
	kept []byte
	most int
	full func(error) // is called when more comes
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	room := min(len(p), b.most-len(b.kept))
	if b.kept = append(b.kept, p[:room]...); room == len(p) || b.full == nil {
		return len(p), nil
	}
	err := fmt.Errorf("it writes more than %d bytes", b.most)
	b.full(err)
	return room, err
}

// readableIn reports whether the text of a letter is shown in place of the bytes, and takes it away if it is not. What
// is masked in the text cannot be found in the bytes.
func readableIn(v *operate.WholeData, format string, unmasked bool) bool {
	d := v.Decoded
	switch {
	case d == nil || d.Failed != "":
		return false
	case unmasked && d.Masked, format == "hex" && !d.Masked: // a server masks its text in any case
		v.Decoded = nil
		return false
	}
	return true
}
