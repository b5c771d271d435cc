package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

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

The payload is shown as JSON, text or hex, cut at --limit bytes. --redact, or SPILLWAY_REDACT, or redact in the file of the
configuration names a program that reads the payload and writes what may be seen. If the program fails, no payload is shown.

A sealed letter is opened with --keys: redrive help sealing says how. Without its key the rest is shown.

Secrets are masked: redrive help privacy says how. --unmasked shows them, and is kept on record.`,
		Example: `  redrive show 1042
  redrive show 7f0c2b1e-5a44-4f6e-9f55-2f9d3c0b8a11
  redrive show 1042 --format hex --limit 0
  redrive show 1042 --no-payload
  redrive show 1042 --unmasked --reason "INC-7: which card?"
  redrive show 1042 --redact "jq 'del(.card)'"`,
		Args: arguments(1, 1, "a SEQ or the id of a message"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := firstOf(oneOf("--format", []string{format}, []string{"auto", "json", "text", "hex"}),
				notNegative("--limit", limit)); err != nil {
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
			whole, events, err := d.Whole(cmd.Context(), a.person(reason), head.Seq, unmasked)
			if err != nil {
				return err
			}
			if unmasked {
				a.bare()
			}
			l, key, closed := whole.Letter, whole.Key, a.closed(whole)
			noPayload = noPayload || closed != nil
			size, payload := whole.PayloadBytes, []byte(l.Original.Payload)
			if a.settings.redact != "" && !noPayload {
				if payload, err = redacted(cmd.Context(), a.settings.redact, payload); err != nil {
					if cmd.Context().Err() != nil {
						return err
					}
					a.screen.Note("no payload is shown: %s", err)
					noPayload = true
				}
			}
			payload = a.privacy.Payload(payload)
			l = operate.Masked(l, a.privacy)
			if a.json {
				v := operate.WholeDataOf(l, a.deskOn(nil, nil).Events(a.person(""), events))
				v.SealKey, v.Sealed = key, says(closed)
				if !noPayload {
					v.PayloadBytes = size
					v.Carry(payload)
				}
				return a.screen.JSON(v)
			}
			shown := ""
			if !noPayload {
				if shown, err = screen.Payload(payload, screen.Format(format), limit); err != nil {
					return coded{err, exitWrong}
				}
			}
			a.letter(l, events, shown, size)
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
	unmaskFlag(f, &unmasked, &reason)
	f.BoolVar(&noPayload, "no-payload", false, "leave the payload out")
	_ = cmd.RegisterFlagCompletionFunc("format",
		cobra.FixedCompletions([]string{"auto", "json", "text", "hex"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// find returns the letter with the SEQ or else with the id. others are the SEQs of more letters with that id.
func find(ctx context.Context, d desk, which string) (l letters.Head, others []int64, err error) {
	if seq, err := strconv.ParseInt(which, 10, 64); err == nil && seq > 0 {
		l, err := d.HeadOf(ctx, seq)
		if !errors.Is(err, letters.ErrNotFound) {
			return l, nil, err
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

// redacted is what the program of the settings writes when it reads the payload.
func redacted(ctx context.Context, program string, payload []byte) ([]byte, error) {
	run := exec.CommandContext(ctx, "sh", "-c", program)
	var out bytes.Buffer
	run.Stdin, run.Stdout = bytes.NewReader(payload), &out
	run.WaitDelay = time.Second // a child of the killed shell may hold the pipe
	if err := run.Run(); err != nil {
		return nil, fmt.Errorf("--redact %q: %w", program, errors.Join(err))
	}
	return out.Bytes(), nil
}

// letter prints a letter for people: names before values, and nothing that is empty.
func (a *app) letter(l letters.Letter, events []letters.Event, payload string, size int) {
	fields := [][2]string{
		{"seq", strconv.FormatInt(l.Seq, 10)}, {"cause", short(l.Cause)}, {"status", a.statusLine(l)},
		{"id", l.Original.UUID}, {"topic", l.Origin.Topic}, {"partition", l.Origin.Partition},
		{"offset", l.Origin.Offset},
		{"key", string(l.Origin.Key)}, {"handler", l.Origin.Handler}, {"group", l.Origin.ConsumerGroup},
		{"dead letter topic", l.DeadLetterTopic}, {"class", l.Failure.Class.String()}, {"reason", l.Failure.Reason},
		{"type", l.Failure.Type}, {"description", l.Failure.Description}, {"attempts", count(l.Failure.Attempts)},
		{"first failed", a.when(l.Failure.FirstFailedAt)}, {"last failed", a.when(l.Failure.LastFailedAt)},
		{"node", l.Failure.Node}, {"stored", a.when(l.StoredAt)}, {"seen", count(l.Seen)}, {"redriven", redrives(l)},
	}
	for _, field := range fields {
		if field[1] != "" {
			a.screen.Field(field[0], field[1])
		}
	}
	if len(l.Failure.History) > 0 {
		a.screen.Head("attempts")
		for _, attempt := range l.Failure.History {
			a.screen.Line("  %s  %s  %s", a.when(attempt.At), attempt.Class, attempt.Error)
		}
	}
	if len(events) > 0 {
		a.screen.Head("life")
		for _, e := range events {
			a.screen.Line("  %s", strings.TrimRight(fmt.Sprintf("%s  %s  %s  %s", a.when(e.At), e.Kind, e.By, e.Reason),
				" "))
		}
	}
	if len(l.Original.Metadata) > 0 {
		a.screen.Head("metadata")
		for _, key := range slices.Sorted(maps.Keys(l.Original.Metadata)) {
			a.screen.Line("  %s = %s", key, l.Original.Metadata[key])
		}
	}
	if l.Failure.Stack != "" {
		a.screen.Head("stack")
		a.screen.Lines(l.Failure.Stack)
	}
	if payload != "" {
		a.screen.Head(fmt.Sprintf("payload, %d bytes", size))
		a.screen.Lines(payload)
	}
}

func (a *app) statusLine(l letters.Letter) string {
	line := string(l.Status)
	if !l.MarkedAt.IsZero() {
		line += ", by " + l.Marked.By + " at " + a.when(l.MarkedAt)
		if l.Marked.Reason != "" {
			line += ": " + l.Marked.Reason
		}
	}
	return line
}

func redrives(l letters.Letter) string {
	if l.Redrive.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%d times, the last by %s, id %s", l.Redrive.Count, l.Redrive.By, l.Redrive.ID)
}

func count(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
