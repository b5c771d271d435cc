package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/linediff"
	"github.com/watermill-spillway/spillway/internal/operate/printable"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

var formats = []string{"auto", "json", "text", "hex"}

func (a *app) show() *cobra.Command {
	var format string
	var limit int
	var noPayload, unmasked bool
	var reason string
	cmd := &cobra.Command{
		Use:   "show SEQ|ID",
		Short: "Show a letter: its story, its metadata and its payload",
		Long: `show prints one letter, chosen by its SEQ, or by the id of its message. If several letters have the id, it is the one that
arrived last, and a line names the others.

The payload is shown as JSON, text or hex, cut at --limit bytes.

--decode names a program that writes payloads as texts for people. It is started without a shell and reads the payload;
SPILLWAY_MESSAGE has id, topic, handler and metadata as JSON. 5 s and 1 MiB are the most. Over --url the console decodes.

A sealed letter is opened with --keys: redrive help sealing says how. Without its key the rest is shown.

Secrets are masked: redrive help privacy says how. --unmasked shows the payload as it is, for a --reason, on record.`,
		Example: `  redrive show 1042
  redrive show 7f0c2b1e-5a44-4f6e-9f55-2f9d3c0b8a11
  redrive show 1042 --format hex --limit 0
  redrive show 1042 --decode ./avro-to-json
  redrive show 1042 --no-payload
  redrive show 1042 --unmasked --reason "INC-7: which card?"`,
		Args: arguments(1, 1, "a SEQ or the id of a message"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cmp.Or(oneOf("--format", format, formats), notNegative("--limit", limit), a.checkDecode()); err != nil {
				return err
			}
			d, err := a.desk(cmd.Context())
			if err != nil {
				return err
			}
			head, others, err := find(cmd.Context(), d, args[0])
			if err != nil {
				return err
			}
			if len(others) > 0 {
				a.screen.Note("%d letters have this id; this is SEQ %d, the others are %s", len(others)+1, head.Seq,
					strings.Trim(fmt.Sprint(others), "[]"))
			}
			var v operate.WholeData
			if unmasked {
				v, err = d.Unmasked(cmd.Context(), reason, head.Seq)
				a.privacy, a.screen.Privacy = privacy.None(), privacy.None()
			} else {
				v, err = d.Letter(cmd.Context(), head.Seq)
			}
			if err != nil {
				return err
			}
			closed, raw, size := a.closed(v), v.Bytes(), v.PayloadBytes
			payload, readable := raw, readableIn(&v, format, unmasked)
			if readable {
				payload = []byte(v.Decoded.Text)
			}
			noPayload = noPayload || closed != nil
			v.Mask(a.privacy)
			masked := a.privacy.Payload(payload)
			v.Payload, v.PayloadB64, v.PayloadBytes = nil, nil, size
			switch {
			case noPayload:
				v.PayloadBytes, v.Decoded = 0, nil
			case readable:
				v.Decoded.Text = string(masked)
				if v.Decoded.Masked = v.Decoded.Masked || string(masked) != string(payload); !v.Decoded.Masked {
					v.Carry(a.privacy.Payload(raw))
				}
			default:
				v.Carry(masked)
			}
			if v.Sealed, v.Version = says(closed), ""; a.json {
				return a.screen.JSON(v)
			}
			shown := ""
			if !noPayload {
				if readable && format != "json" {
					if format = "text"; json.Valid(masked) {
						format = "json"
					}
				}
				if v.Decoded != nil && v.Decoded.Failed != "" {
					a.screen.Note("the payload is not decoded: %s", v.Decoded.Failed)
				}
				if shown, err = screen.Payload(masked, printable.Format(format), limit); err != nil {
					return coded{err, exitWrong}
				}
			}
			a.letter(v, shown, size)
			if closed != nil {
				a.screen.Head("payload")
				a.screen.Line("  %s", closed)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&format, "format", "auto", "auto, json, text or hex")
	f.IntVar(&limit, "limit", 4096, "the largest number of bytes of the payload; 0 shows all")
	f.BoolVar(&unmasked, "unmasked", false, "print the payload with its secrets; the record keeps that you did")
	f.StringVar(&reason, "reason", "", "why, for the record of --unmasked")
	f.BoolVar(&noPayload, "no-payload", false, "leave the payload out")
	a.decodeFlag(f)
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// find returns the letter with the SEQ or else with the id. others are the SEQs of more letters with that id.
func find(ctx context.Context, d *desk, which string) (l operate.LetterData, others []int64, err error) {
	if seq, err := strconv.ParseInt(which, 10, 64); err == nil && seq > 0 {
		v, err := d.Letter(ctx, seq)
		if !errors.Is(err, letters.ErrNotFound) {
			return v.LetterData, nil, err
		}
	}
	for head, err := range heads(ctx, d, letters.Filter{IDs: []string{which}, Statuses: letters.Statuses()}) {
		if err != nil {
			return l, nil, err
		}
		if l.Seq > 0 {
			others = append(others, l.Seq)
		}
		l = head
	}
	if l.Seq == 0 {
		return l, nil, none("no letter has the SEQ or the id %q: redrive list prints both", which)
	}
	return l, others, nil
}

// letter prints a letter for people: names before values, and nothing that is empty.
func (a *app) letter(v operate.WholeData, payload string, size int) {
	a.fields([][2]string{
		{"seq", strconv.FormatInt(v.Seq, 10)}, {"cause", short(v.Cause)}, {"status", a.statusLine(v)},
		{"id", v.ID}, {"topic", v.Topic}, {"partition", v.Partition}, {"offset", v.Offset}, {"key", v.Key},
		{"handler", v.Handler}, {"group", v.Group}, {"dead letter topic", v.DeadLetterTopic}, {"class", v.Class},
		{"reason", v.Reason}, {"type", v.Type}, {"description", v.Description}, {"attempts", count(v.Attempts)},
		{"first failed", a.when(v.FirstFailedAt)}, {"last failed", a.when(v.LastFailedAt)}, {"node", v.Node},
		{"stored", a.when(v.StoredAt)}, {"seen", count(v.Seen)}, {"redriven", redrives(v)},
	}...)
	if len(v.History) > 0 {
		a.screen.Head("attempts")
		for _, attempt := range v.History {
			a.screen.Line("  %s  %s  %s", a.when(attempt.At), attempt.Class, attempt.Error)
		}
	}
	if len(v.Life) > 0 {
		a.screen.Head("life")
		for _, e := range v.Life {
			a.screen.Line("  %s", strings.TrimRight(fmt.Sprintf("%s  %s  %s  %s", a.when(e.At), e.Kind, e.By, e.Reason),
				" "))
		}
	}
	if len(v.Metadata) > 0 {
		a.screen.Head("metadata")
		for _, key := range slices.Sorted(maps.Keys(v.Metadata)) {
			a.screen.Line("  %s = %s", key, v.Metadata[key])
		}
	}
	if v.Stack != "" {
		a.screen.Head("stack")
		a.screen.Lines(v.Stack)
	}
	if payload != "" {
		head := fmt.Sprintf("payload, %d bytes", size)
		if v.Decoded != nil && v.Decoded.Failed == "" {
			head += ", decoded as " + v.Decoded.MediaType
		}
		a.screen.Head(head)
		a.screen.Lines(payload)
	}
}

func (a *app) statusLine(v operate.WholeData) string {
	line := v.Status
	if !v.MarkedAt.IsZero() {
		if v.MarkedBy != "" { // a drain of a program has no person
			line += ", by " + v.MarkedBy
		}
		line += " at " + a.when(v.MarkedAt)
		if v.MarkedReason != "" {
			line += ": " + v.MarkedReason
		}
	}
	return line
}

func redrives(v operate.WholeData) string {
	if v.Redrives == 0 {
		return ""
	}
	return fmt.Sprintf("%d times, the last by %s, id %s", v.Redrives, v.RedrivenBy, v.RedrivenID)
}

func count(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// diff prints what an edit does: lines that go with a minus, lines that come with a plus.
func (a *app) diff(edited *inside.Diff) {
	d := operate.DifferenceOf(edited, a.privacy)
	if d.Refused != "" {
		a.screen.Styled(screen.Red, "  refused: %s", d.Refused)
		return
	}
	for _, key := range d.Metadata {
		if key.Before != nil {
			a.screen.Styled(screen.Red, "- %s = %s", key.Key, *key.Before)
		}
		if key.After != nil {
			a.screen.Styled(screen.Green, "+ %s = %s", key.Key, *key.After)
		}
	}
	switch {
	case d.Withheld != "":
		a.screen.Line("  how the payload changes is not shown: %s", d.Withheld)
	case d.Nothing:
		a.screen.Line("  nothing changes")
	case d.Bytes:
		a.screen.Line("  the payload changes; it is no text, and so is not shown")
	case d.Space:
		a.screen.Line("  the payload changes in white space alone")
	default:
		a.lines(d)
	}
}

func (a *app) lines(d *operate.Difference) {
	for _, line := range d.Lines {
		switch line.Kind {
		case linediff.Gone:
			a.screen.Styled(screen.Red, "- %s", line.Text)
		case linediff.Come:
			a.screen.Styled(screen.Green, "+ %s", line.Text)
		case linediff.Skipped:
			a.screen.Styled(screen.Dim, "… %s …", several(line.Lines, "line"))
		default:
			a.screen.Line("  %s", line.Text)
		}
	}
	if d.Cut {
		a.screen.Line("… there is more")
	}
}
