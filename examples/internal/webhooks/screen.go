package webhooks

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Progress draws a bar until done reaches total or ctx ends: in place on a terminal, a line for every quarter
// elsewhere.
func Progress(ctx context.Context, out *os.File, what string, total int, done func() int) error {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	quarter := 0
	for {
		n := done()
		share := min(n*4/max(total, 1), 4)
		if terminal || share > quarter || n >= total {
			start, end := "", "\n"
			if terminal {
				start, end = "\r", ""
			}
			fmt.Fprintf(out, "%s%-12s [%-40s] %d/%d%s", start, what, strings.Repeat("=", min(n*40/max(total, 1), 40)),
				n, total,
				end)
			quarter = share
		}
		if n >= total {
			if terminal {
				fmt.Fprintln(out)
			}
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if terminal {
				fmt.Fprintln(out)
			}
			return fmt.Errorf("%s: %d of %d, then: %w", what, n, total, context.Cause(ctx))
		}
	}
}

// Table prints the dead letters that wait, by cause.
func Table(ctx context.Context, out io.Writer, title string, store *letters.Store) error {
	groups, err := store.Groups(ctx, letters.Filter{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s\n", title)
	if len(groups) == 0 {
		fmt.Fprintln(out, "  none")
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, g := range groups {
		if i == 0 {
			fmt.Fprintln(table, "  COUNT\tTOPIC\tCLASS\tREASON\tFOR EXAMPLE")
		}
		fmt.Fprintf(table, "  %d\t%s\t%s\t%s\t%s\n", g.Count, printable(g.DeadLetterTopic), g.Class,
			printable(g.Reason),
			printable(g.Description))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	return nil
}

// printable keeps what comes from messages from steering the terminal.
func printable(s string) string {
	const limit = 70
	var b strings.Builder
	for _, r := range s {
		if b.Len() > limit {
			b.WriteString("…")
			break
		}
		if !unicode.IsPrint(r) {
			r = '?'
		}
		b.WriteRune(r)
	}
	return b.String()
}
