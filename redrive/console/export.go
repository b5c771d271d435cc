package console

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/text/printable"
)

// The files that the record is exported as. No other name is served.
const (
	auditJSON = "audit.jsonl"
	auditCSV  = "audit.csv"
	// exporting is how long a file may take.
	exporting = 5 * time.Minute
)

// exportAudit sends the events that a filter chooses, the newest first, page by page: the server keeps one page in
// memory.
func (c *console) exportAudit(r *request) (answer, error) {
	of, err := r.record()
	if err != nil {
		return answer{}, err
	}
	write, err := c.desk.Export(r.http.Context(), r.who(""), of) // before anything is sent, so that an error is a page
	if err != nil {
		return answer{}, err
	}
	switch r.http.PathValue("file") {
	case auditJSON:
		return answer{file: &file{kind: "application/jsonl; charset=utf-8", name: auditJSON,
			write: func(w io.Writer) error {
				out := bufio.NewWriterSize(w, 64<<10)
				lines := json.NewEncoder(out)
				err := write(func(e operate.EventData) error { return lines.Encode(e) })
				return errors.Join(err, out.Flush())
			}}}, nil
	case auditCSV:
		return answer{file: &file{kind: "text/csv; charset=utf-8", name: auditCSV, write: func(w io.Writer) error {
			out := bufio.NewWriterSize(w, 64<<10)
			line := func(cells []string) error { _, err := out.WriteString(csvLine(cells)); return err }
			err := line([]string{"number", "at", "kind", "seq", "id", "by", "reason", "redrive_id", "detail"})
			if err == nil {
				err = write(func(e operate.EventData) error { return line(cellsOf(e)) })
			}
			return errors.Join(err, out.Flush())
		}}}, nil
	}
	return answer{}, noPage()
}

// cellsOf are an event as a row of a spreadsheet, in which nothing is a formula.
func cellsOf(e operate.EventData) []string {
	cells := []string{strconv.FormatInt(e.Number, 10), e.At, e.Kind, strconv.FormatInt(e.Seq, 10), e.ID, e.By, e.Reason,
		e.RedriveID, e.Detail}
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
