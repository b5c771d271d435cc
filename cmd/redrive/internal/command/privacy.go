package command

import (
	"bytes"
	"context"
	"encoding/json"
	"os"

	"github.com/spf13/pflag"

	"github.com/watermill-spillway/spillway/privacy"
)

const privacyHelp = `What redrive prints of letters is masked: a secret reads [redacted]. Passwords, tokens, keys and card numbers are found by their
names and shapes. For names of persons, and the like, --privacy, or SPILLWAY_PRIVACY, or privacy in the file of the
configuration names a file of rules:

  {
    "metadata": ["customer", "*.email"],
    "patterns": ["customer \"([^\"]+)\""],
    "payload":  ["$.card.number", "$.users[*].name", "$..iban"]
  }

metadata are keys, with * and ?. patterns are RE2 expressions for texts; their groups are masked, or all that they match.
payload are JSON paths.

Masking changes what is printed, never what is redriven. redrive show --unmasked and redrive diff --unmasked print what is
there. The record keeps that they did, and who. redrive export writes letters as they are, because redrive import makes the
same letters of them; redrive export --masked and --format csv are masked.`

// rules are the file of --privacy.
type rules struct {
	Metadata []string `json:"metadata"`
	Patterns []string `json:"patterns"`
	Payload  []string `json:"payload"`
}

// protect makes the redactors of this run: one for values of letters, and one for whatever is printed.
func (a *app) protect() error {
	var r rules
	if path := a.settings.privacy; path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return wrong("--privacy: %w", err)
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&r); err != nil {
			return wrong("--privacy: %s: %w: redrive help privacy shows a file", path, err)
		}
	}
	values, err := privacy.New(privacy.Rules{Metadata: r.Metadata, Patterns: r.Patterns, Payload: r.Payload})
	if err != nil {
		return wrong("--privacy: %s: %w", a.settings.privacy, err)
	}
	a.privacy = values
	a.screen.Privacy, err = privacy.New(privacy.Rules{Patterns: r.Patterns})
	return err
}

// unmaskFlag adds the flag that shows what is masked.
func unmaskFlag(flags *pflag.FlagSet, unmasked *bool, reason *string) {
	flags.BoolVar(unmasked, "unmasked", false, "print secrets too; the record keeps that you did")
	flags.StringVar(reason, "reason", "", "why, for the record of --unmasked")
}

// unmask shows letters as they are, once the record has it.
func (a *app) unmask(ctx context.Context, d *desk, reason string, seqs ...int64) error {
	for _, seq := range seqs {
		if _, err := d.Unmasked(ctx, reason, seq); err != nil {
			return err
		}
	}
	a.bare()
	return nil
}

// bare ends the masking of this run.
func (a *app) bare() { a.privacy, a.screen.Privacy = privacy.None(), privacy.None() }
