package command

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/watermill-spillway/spillway/internal/codec/envelope"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
	"github.com/watermill-spillway/spillway/settings"
)

const sealingHelp = `A service can seal its letters: payload and metadata are encrypted in the database and in dead-letter topics. --keys, or
SPILLWAY_KEYS, or keys in the file of the configuration names the file with the keys that open them: a key a line, its id and the
base64 of 32 bytes. The first key seals, all of them open.

  orders-2026-11 q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=
  orders-2025-11 EjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJCrze8=

Only the owner may write the file, and only owner and group may read it: chmod 600.

Without its key a letter is still listed, grouped, counted, discarded and purged. show prints all but its payload, and names the
key. diff, edits, drain, work and export need it. A letter that does not open stays as it is; drain parks it.

redrive reseal --dry-run and redrive doctor count the letters of each key.`

// unlock reads the file of keys, if one is named.
func (a *app) unlock() error {
	if a.settings.keys == "" || a.sealer != nil {
		return nil
	}
	ring, err := seal.ReadKeyring(a.settings.keys)
	if err == nil {
		a.sealer, err = seal.New(ring, a.clear...)
	}
	if err != nil {
		return wrong("--keys: %w: redrive help sealing shows a file", err)
	}
	return nil
}

// newStore opens the dead letters, with the keys if there are some.
func (a *app) newStore(ctx context.Context, db *sql.DB) (*letters.Store, error) {
	if err := a.unlock(); err != nil {
		return nil, err
	}
	return letters.NewStore(ctx, db, settings.Shared{Service: a.settings.service, Seal: a.sealer})
}

// clearFlag adds the flag for what stays readable in letters that the command seals.
func (a *app) clearFlag(flags *pflag.FlagSet) {
	flags.StringArrayVar(&a.clear, "clear", nil,
		"metadata key that stays readable in what is sealed now: those of the "+
			"service's seal.New")
}

// open opens a letter that is sealed. If it does not open, the error says which key it needs, and the letter has no
// payload.
func (a *app) open(ctx context.Context, store *letters.Store, l letters.Letter) (letters.Letter, error) {
	opened, err := (&operate.Desk{Store: store}).Open(ctx, l)
	if err == nil && opened.Closed != nil {
		err = a.sealed(l.Seq, opened.Key, opened.Closed)
	}
	return opened.Letter, err
}

// opens returns an error for a letter that does not open.
func (a *app) opens(ctx context.Context, d *desk, seq int64) error {
	v, err := d.Letter(ctx, seq)
	if err == nil {
		err = a.closed(v)
	}
	return err
}

// errWithheld is why a letter has no payload here.
var errWithheld = errors.New("the server does not show you payloads and metadata: that needs the right to look")

// closed says why a letter has no payload, and what to do.
func (a *app) closed(v operate.WholeData) error {
	if v.Sealed == "" {
		if v.Payload == nil && v.PayloadB64 == nil && v.Status != string(letters.StatusErased) {
			return errWithheld
		}
		return nil
	}
	err := errors.New(v.Sealed)
	for _, known := range []error{seal.ErrNoKeys, seal.ErrUnknownKey} {
		if a.settings.url == "" && strings.Contains(v.Sealed, known.Error()) {
			err = known
		}
	}
	return a.sealed(v.Seq, v.SealKey, err)
}

// sealed says which key a letter needs that did not open, and what to do.
func (a *app) sealed(seq int64, key string, err error) error {
	named := fmt.Sprintf("letter %d is sealed with key id %q", seq, key)
	switch {
	case errors.Is(err, seal.ErrNoKeys):
		return fmt.Errorf("%s: give the file of keys with --keys FILE or SPILLWAY_KEYS", named)
	case errors.Is(err, seal.ErrUnknownKey):
		return fmt.Errorf("%s, which %q does not have: add the key as a further line", named, a.settings.keys)
	}
	var of *envelope.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return fmt.Errorf("%s: %w", named, err)
}

// says is the text of an error, or nothing.
func says(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// closedLetters counts letters that did not open, by key, and keeps why the first of each did not.
type closedLetters map[string]*closedKey

type closedKey struct {
	letters int
	why     error
}

func (c closedLetters) add(key string, why error) {
	if c[key] == nil {
		c[key] = &closedKey{why: why}
	}
	c[key].letters++
}

func (c closedLetters) err() error {
	if len(c) == 0 {
		return nil
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(c)) {
		lines = append(lines, fmt.Sprintf("%s of key id %q left out: %s", several(c[key].letters, "letter"), key,
			c[key].why))
	}
	return partly("%s; --sealed writes them as they are", strings.Join(lines, "; "))
}

// seals says how many letters each key has, and whether --keys has them all.
func (d *diagnosis) seals(ctx context.Context, store *letters.Store) {
	keys, err := store.Inside().SealKeys(ctx)
	if err != nil {
		d.note("sealing", err, "")
		return
	}
	var all, lost []string
	for _, k := range keys {
		all = append(all, fmt.Sprintf("%s %s", several(k.Letters, "letter"), sealedWith(k.Key)))
		if k.Key != "" && d.app.settings.keys != "" && !d.has(ctx, k.Key) {
			lost = append(lost, k.Key)
		}
	}
	if len(lost) > 0 {
		d.note("sealing", fmt.Errorf("%q does not have the keys %q, and %s: add them as further lines",
			d.app.settings.keys, lost,
			strings.Join(all, ", ")), "")
	} else if d.app.settings.keys != "" || len(keys) > 1 || len(keys) == 1 && keys[0].Key != "" {
		d.note("sealing", nil, "%s", strings.Join(all, ", "))
	}
}

func (d *diagnosis) has(ctx context.Context, key string) bool {
	ring, err := seal.ReadKeyring(d.app.settings.keys)
	if err == nil {
		_, err = ring.Find(ctx, key, nil)
	}
	return err == nil
}

func sealedWith(key string) string {
	if key == "" {
		return "not sealed"
	}
	return "sealed with key id " + quoted(key)
}
