package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/masked"
	"github.com/watermill-spillway/spillway/internal/printable"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// The files that the record is exported as. No other name is served.
const (
	auditJSON = "audit.jsonl"
	auditCSV  = "audit.csv"
	// maxExported is how many events a file has at most: the newest. Since and Until choose others.
	maxExported = 200_000
	// exporting is how long a file may take.
	exporting = 5 * time.Minute
)

// exportedEvent is a line of an export, by names that stay.
type exportedEvent struct {
	Number    int64     `json:"number"`
	At        time.Time `json:"at"`
	What      string    `json:"what"`
	Letter    int64     `json:"letter"`
	MessageID string    `json:"message_id"`
	By        string    `json:"by"`
	Reason    string    `json:"reason"`
	RedriveID string    `json:"redrive_id"`
	Detail    string    `json:"detail"`
}

// exportAudit sends the events that a filter chooses, the newest first, page by page: the server keeps one page in
// memory.
func (c *Console) exportAudit(r *request) (answer, error) {
	f, seq, err := auditFilter(r.query, r.now)
	if err != nil {
		return answer{}, err
	}
	f.After, f.Limit = 0, letters.MaxLimit
	next := func(ctx context.Context) (events []letters.Event, err error) {
		if seq > 0 {
			return c.store.History(ctx, seq)
		}
		return c.store.Audit(ctx, f)
	}
	first, err := next(r.Context()) // before anything is sent, so that an error is a page
	if err != nil {
		return answer{}, err
	}
	write := func(row func(exportedEvent) error) error {
		for events, sent := first, 0; len(events) > 0; {
			for _, e := range events {
				if err := row(c.exported(r, e)); err != nil {
					return err
				}
			}
			if sent += len(events); seq > 0 || len(events) < f.Limit || sent >= maxExported {
				break
			}
			f.After = events[len(events)-1].Number
			if events, err = next(r.Context()); err != nil {
				return err
			}
		}
		return nil
	}
	switch r.values["file"] {
	case auditJSON:
		return answer{file: &file{kind: "application/jsonl; charset=utf-8", name: auditJSON,
			write: func(w io.Writer) error {
				out := bufio.NewWriterSize(w, 64<<10)
				lines := json.NewEncoder(out)
				err := write(func(e exportedEvent) error { return lines.Encode(e) })
				return errors.Join(err, out.Flush())
			}}}, nil
	case auditCSV:
		return answer{file: &file{kind: "text/csv; charset=utf-8", name: auditCSV, write: func(w io.Writer) error {
			out := bufio.NewWriterSize(w, 64<<10)
			line := func(cells []string) error { _, err := out.WriteString(csvLine(cells)); return err }
			err := line([]string{"number", "at", "what", "letter", "message_id", "by", "reason", "redrive_id", "detail"})
			if err == nil {
				err = write(func(e exportedEvent) error { return line(e.cells()) })
			}
			return errors.Join(err, out.Flush())
		}}}, nil
	}
	return answer{}, noPage()
}

// exported is an event as a person may have it in a file: masked, as on the page.
func (c *Console) exported(r *request, e letters.Event) exportedEvent {
	p := c.config.Privacy
	x := exportedEvent{
		Number: e.Number, At: e.At.UTC(), What: string(e.Kind), Letter: e.Seq, MessageID: p.Text(e.MessageID), By: e.By,
		Reason: p.Text(e.Reason), RedriveID: e.RedriveID,
	}
	if r.person.Role >= Look {
		x.Detail = masked.Detail(p, e.Detail)
	}
	return x
}

// cells are the event as a row of a spreadsheet, in which nothing is a formula.
func (e *exportedEvent) cells() []string {
	cells := []string{
		strconv.FormatInt(e.Number, 10), e.At.Format(time.RFC3339Nano), e.What, strconv.FormatInt(e.Letter, 10),
		e.MessageID,
		e.By, e.Reason, e.RedriveID, e.Detail,
	}
	for i, cell := range cells {
		cells[i] = printable.Cell(cell)
	}
	return cells
}

// csvLine is a line of a CSV file. Every cell is quoted, whatever separates cells where the file is read.
func csvLine(cells []string) string {
	quoted := make([]string, len(cells))
	for i, cell := range cells {
		quoted[i] = `"` + strings.ReplaceAll(cell, `"`, `""`) + `"`
	}
	return strings.Join(quoted, ",") + "\n"
}
