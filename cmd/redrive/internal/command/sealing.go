package command

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/codec/envelope"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
)

const sealingHelp = `A service can seal its letters: payload and metadata are encrypted in the database and in dead-letter topics. --keys, or
SPILLWAY_KEYS, or keys in the file of the configuration names the file with the keys that open them: a key a line, its id and the
base64 of 32 bytes. The first key seals, all of them open.

  orders-2026-11 q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=
  orders-2025-11 EjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJCrze8=

Only the owner may write the file, and only owner and group may read it: chmod 600.

Without its key a letter is still listed, grouped, counted, discarded and purged. show prints all but its payload, and names the
key. Edits, drain, work and export need it. A letter that does not open stays as it is; drain parks it.

redrive reseal --dry-run counts the letters of each key.`

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
	return letters.NewStore(ctx, db, letters.Config{Service: a.settings.service, Seal: a.sealer})
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

// errWithheld is why a letter has no payload here.
var errWithheld = errors.New("the server does not show you payloads and metadata: that needs the right to look")

// closed says why a letter has no payload, and what to do.
func (a *app) closed(v operate.WholeData) error {
	if v.Sealed == "" {
		if v.Payload == nil && v.PayloadB64 == nil && v.Decoded == nil && v.Status != string(letters.StatusErased) {
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

// resealView is what reseal did.
type resealView struct {
	inside.Resealed
	Left int `json:"left"`
}

// keyView is a key and its letters.
type keyView struct {
	inside.KeyCount
	Current bool `json:"current,omitempty"`
}

type resealFlags struct {
	from        []string
	reason      string
	dryRun, yes bool
}

func (a *app) reseal() *cobra.Command {
	var r resealFlags
	cmd := &cobra.Command{
		Use:   "reseal",
		Short: "Seal letters with the current key, and count letters by key",
		Long: `reseal seals letters with the first key of --keys: those of other keys, and those that are not sealed. It works in small
transactions beside other traffic, and each letter has an event. If it is killed, each letter has its old key or the new one: run it
again. It leaves out letters that a program works on, and those that arrive after the start. A letter that does not open stays as it
is (exit code 5).

--dry-run counts the letters of each key, and needs no keys. An old key may go if it has no letters here, and none in a topic.

Letters that are not sealed yet are sealed with all of their metadata: --clear names what stays readable, as the service does it.`,
		Example: `  redrive reseal --dry-run
  redrive reseal --keys letters.keys --clear tenant --reason "rotation of November"
  redrive reseal --keys letters.keys --from orders-2025-11 --reason "rotation" --yes`,
		Args: arguments(0, 0, "none: flags choose the letters"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.resealAll(cmd.Context(), r) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&r.from, "from", nil, "id of a key: only letters that are sealed with it")
	a.clearFlag(f)
	f.BoolVar(&r.dryRun, "dry-run", false, "count the letters of each key, and change nothing")
	f.StringVar(&r.reason, "reason", "", "why, for the record (required)")
	f.BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) resealAll(ctx context.Context, r resealFlags) error {
	switch {
	case a.settings.keys == "" && !r.dryRun:
		return wrong("--keys is empty: name the file of keys, with the new key as its first line, or set SPILLWAY_KEYS; " +
			"redrive help sealing shows a file")
	case r.reason == "" && !r.dryRun:
		return errNoReason
	}
	store, err := a.store(ctx)
	if err != nil {
		return err
	}
	current := ""
	if a.sealer != nil {
		if current, err = hidden.Of(a.sealer).CurrentID(ctx); err != nil {
			return err
		}
	}
	keys, err := hidden.Of(store).SealKeys(ctx)
	if err != nil {
		return err
	}
	if r.dryRun {
		return a.keyTable(keys, current)
	}
	f, n, err := r.choose(ctx, store, keys, current)
	if err != nil {
		return err
	}
	if n == 0 {
		return none("no letter needs to be resealed: redrive reseal --dry-run counts the letters of each key")
	}
	if err := a.confirm(r.yes, "seal %s of %s with key id %q?", several(n, "letter"), a.owner(), current); err != nil {
		return err
	}
	report, err := hidden.Of(store).Reseal(ctx, f, letters.Act{By: a.settings.by, Reason: r.reason},
		nil)
	view := resealView{report, max(0, n-report.Resealed-report.Closed)}
	if a.json {
		err = errors.Join(err, a.screen.JSON(view))
	} else {
		a.screen.Line("sealed %s with key id %q", several(report.Resealed, "letter"), current)
		for _, why := range report.Why {
			a.screen.Line("  %s", why)
		}
	}
	switch {
	case err != nil:
		return err
	case report.Closed > 0:
		return partly("%s not opened, and left as they are: add their keys to %q, or compare the letters with a backup",
			several(report.Closed, "letter"), a.settings.keys)
	case view.Left > 0:
		f.Leased = true
		if n, err := store.Count(ctx, f); err != nil || n == 0 {
			return errors.Join(err, partly("%s left, which were changed meanwhile, or are hidden: redrive doctor says what is "+
				"seen here", several(view.Left, "letter")))
		}
		return partly("%s left, because a program works on them: run reseal again", several(view.Left, "letter"))
	}
	return nil
}

// choose returns the Filter of the letters that another key has, bounded by what is there now, and how many there are.
func (r resealFlags) choose(ctx context.Context, store *letters.Store, keys []inside.KeyCount,
	current string) (f letters.Filter, n int, err error) {
	for _, k := range keys {
		if k.Key != current && (len(r.from) == 0 || slices.Contains(r.from, k.Key)) &&
			len(f.SealKeys) < letters.MaxListed {
			f.SealKeys = append(f.SealKeys, k.Key)
		}
	}
	if len(f.SealKeys) == 0 {
		return f, 0, nil
	}
	for _, status := range letters.Statuses() {
		if status != letters.StatusErased { // nothing is left to seal
			f.Statuses = append(f.Statuses, status)
		}
	}
	if f.MaxSeq, err = hidden.Of(store).LastSeq(ctx); err != nil || f.MaxSeq == 0 {
		return f, 0, err
	}
	n, err = store.Count(ctx, f)
	return f, n, err
}

// keyTable prints how many letters each key has.
func (a *app) keyTable(keys []inside.KeyCount, current string) error {
	if len(keys) == 0 {
		return none("there is no letter")
	}
	var all []keyView
	for _, k := range keys {
		all = append(all, keyView{k, k.Key != "" && k.Key == current})
	}
	return rows(a, all, []screen.Column{{Name: "KEY", Style: screen.Blue}, {Name: "LETTERS", Right: true}, {Name: ""}},
		func(k keyView) []any {
			what := "would be resealed"
			switch {
			case k.Key == "":
				what = "not sealed"
			case k.Current:
				what = "current"
			case current == "":
				what = ""
			}
			return []any{cmp.Or(k.Key, "-"), k.Letters, what}
		})
}
