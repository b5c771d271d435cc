package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const jsonHelp = `With --json a command prints one object a line. Names are never changed or removed; new ones may come. Times are
RFC 3339 in UTC. Counts are numbers. What is empty is left out, apart from counts. Characters that a terminal obeys are
\u escapes, so a program reads the same text. Bytes that are no text have U+FFFD in their place: redrive export is lossless.

The objects are those of the API, as openapi.json in docs/api.md describes them: causes, list, show, audit, campaigns, breaker,
sequences and policies print one for each row, and what changes something prints what it did.`

// when is a time for people on a terminal, and for programs in a pipe.
func (a *app) when(t time.Time) string {
	if t.IsZero() || !a.screen.Terminal() {
		return operate.Stamp(t)
	}
	if a.screen.Narrow() {
		return t.UTC().Format("01-02 15:04:05")
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// rows prints values as a table, or with --json as an object a line.
func rows[T any](a *app, all []T, columns []screen.Column, cells func(T) []any) error {
	t := &screen.Table{Columns: columns}
	for _, one := range all {
		if !a.json {
			t.Row(cells(one)...)
		} else if err := a.screen.JSON(one); err != nil {
			return err
		}
	}
	if !a.json {
		a.screen.Table(t)
	}
	return nil
}

// answer prints what was done in a line, or with --json as an object.
func (a *app) answer(v any, format string, args ...any) error {
	if a.json {
		return a.screen.JSON(v)
	}
	a.screen.Line(format, args...)
	return nil
}

// fields prints what has a value, a line each.
func (a *app) fields(all ...[2]string) {
	for _, field := range all {
		if field[1] != "" {
			a.screen.Field(field[0], field[1])
		}
	}
}

// confirm asks, if --yes was not given.
func (a *app) confirm(yes bool, format string, args ...any) error {
	if yes {
		return nil
	}
	return a.screen.Confirm(format, args...)
}

// styleOf marks what a status says.
func styleOf(s letters.Status) screen.Style {
	switch s {
	case letters.StatusWaiting:
		return screen.Amber
	case letters.StatusRedriven:
		return screen.Green
	case letters.StatusQuarantined:
		return screen.Red
	}
	return screen.Dim
}

// several is a number of things.
func several(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

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

Masking changes what is printed, never what is redriven. redrive show --unmasked prints the payload that is there. The record
keeps that it did, who and why. redrive export writes letters as they are, because redrive import makes the
same letters of them.`

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
