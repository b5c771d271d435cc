package command

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/archive"
	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func (a *app) export() *cobra.Command {
	var chosen choice
	var sealed bool
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write letters as JSON lines",
		Long: `export writes the chosen letters to the standard output. JSON lines lose nothing: redrive import makes the same letters of
them, byte for byte. They hold payloads, and nothing in them is masked: keep the file as you keep the database. What may be shown,
redrive list --json and redrive show --json print.

Sealed letters are opened with --keys, and written as they were. Those that do not open are left out, and export ends with exit
code 5. --sealed writes them as they are, without keys: redrive import stores them sealed.`,
		Example: `  redrive export --status all > letters.jsonl
  redrive list --json | jq -r '[.seq, .topic, .reason, .description] | @csv' > letters.csv`,
		Args: arguments(0, 0, "none: flags choose the letters"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, out := cmd.Context(), bufio.NewWriter(a.screen.Out)
			store, err := a.store(ctx)
			if err != nil {
				return err
			}
			f, err := chosen.filter(ctx, a.here(store, nil))
			if err != nil {
				return err
			}
			n, closed := 0, 0
			var first error // of those that do not open
			for l, err := range paged(ctx, f, store.List, func(l letters.Letter) int64 { return l.Seq }) {
				if err == nil && l.Status == letters.StatusErased { // it would come back as a letter without a message
					continue
				}
				if err == nil && l.Sealed && !sealed {
					opened, why := a.open(ctx, store, l)
					if ctx.Err() != nil {
						return ctx.Err()
					}
					if why != nil {
						closed++
						first = cmp.Or(first, why)
						continue
					}
					l = opened
				}
				var line []byte
				if err == nil {
					line, err = screen.Line(archive.Of(l))
				}
				if err == nil {
					_, err = out.Write(append(line, '\n'))
				}
				if err != nil {
					return err
				}
				n++
			}
			if err := out.Flush(); err != nil {
				return err
			}
			a.screen.Note("exported %s", several(n, "letter"))
			if closed > 0 {
				return partly("%s left out: %w; --sealed writes them as they are", several(closed, "letter"), first)
			}
			return nil
		},
	}
	chosen.flags(cmd, a.process.In, true)
	cmd.Flags().BoolVar(&sealed, "sealed", false, "write sealed letters as they are; needs no keys")
	return cmd
}

// importReport is what import did.
type importReport struct {
	Imported int `json:"imported"`
	Skipped  int `json:"skipped"`
}

func (a *app) imports() *cobra.Command {
	var any, yes bool
	cmd := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Store letters that export wrote",
		Long: `import stores the letters of a file of JSON lines; - is the standard input. An imported letter waits. A letter that is in the
store already is not stored twice, and the record counts that it was seen again. Letters that were not waiting when they were
exported are skipped, because a redrive would bring them back a second time; --any-status stores them too.

With --keys, letters that are not sealed are sealed with the first key. Sealed ones stay as they are.

The whole file is checked before the first letter is stored.`,
		Example: `  redrive import letters.jsonl
  redrive export --db $OLD | redrive import - --db $NEW --yes`,
		Args: arguments(1, 1, "a file, or - for the standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			records, report, err := a.records(args[0], any)
			if err != nil {
				return err
			}
			store, err := a.emptyStore(cmd.Context())
			if err != nil {
				return err
			}
			if len(records) == 0 {
				return none("no letter of the file waits: --any-status stores the others too")
			}
			if err := a.confirm(yes, "import %s into %s?", several(len(records), "letter"), a.owner()); err != nil {
				return err
			}
			err = a.importAll(cmd, store, records, &report)
			return errors.Join(err, a.answer(report, "imported %s, skipped %d", several(report.Imported, "letter"), report.Skipped))
		},
	}
	cmd.Flags().BoolVar(&any, "any-status", false, "also letters that were redriven, discarded, refused or quarantined")
	a.clearFlag(cmd.Flags())
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// records reads and checks the whole file.
func (a *app) records(path string, any bool) (records []archive.Record, report importReport, err error) {
	in := a.process.In
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, report, wrong("%w", err)
		}
		defer file.Close()
		in = file
	}
	lines := bufio.NewReader(in)
	for number := 1; ; number++ {
		line, readErr := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			err := readable(line)
			var r archive.Record
			if err == nil {
				r, err = archive.Parse(line)
			}
			if err != nil {
				return nil, report, wrong("%s, line %d: %w", path, number, err)
			}
			if r.Status == letters.StatusWaiting || any {
				records = append(records, r)
			} else {
				report.Skipped++
			}
		}
		if errors.Is(readErr, io.EOF) {
			return records, report, nil
		}
		if readErr != nil {
			return nil, report, readErr
		}
	}
}

func (a *app) importAll(cmd *cobra.Command, store *letters.Store, records []archive.Record,
	report *importReport) error {
	for _, r := range records {
		msg := r.Message()
		msg.SetContext(cmd.Context())
		if err := store.Publish(r.DeadLetterTopic, msg); err != nil {
			return err
		}
		report.Imported++
	}
	return nil
}
