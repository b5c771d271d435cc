package console

import (
	"bufio"
	"errors"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/printable"
	"github.com/watermill-spillway/spillway/internal/operate/web"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// eventsAtOnce is how many events a page of the record has.
const eventsAtOnce = 100

// auditView is the record: who did what to which letter, when and why.
type auditView struct {
	By, Since, Until, Message, Letter, RedriveID string
	Kinds                                        []kindOption
	Events                                       []auditLine
	Next, CSV                                    string
	Details                                      bool // the person may see the details of edits
	Action                                       string
}

type kindOption struct {
	Kind, Name string
	Selected   bool
}

type auditLine struct {
	operate.EventData
	What            string
	Letter, Redrive string // addresses
}

// record is which entries of the record a request asks for.
func (r *request) record() (operate.Record, error) {
	of, err := operate.ParseRecord(r.Query, r.Now)
	of.Filter.NewestFirst = true
	return of, err
}

func (c *console) audit(r *request) (answer, error) {
	of, err := r.record()
	if err != nil {
		return answer{}, err
	}
	view := auditView{
		By: r.Query.Get("by"), Since: r.Query.Get("since"), Until: r.Query.Get("until"), Message: r.Query.Get("id"),
		Letter: r.Query.Get("letter"), RedriveID: r.Query.Get("redrive-id"), Details: r.Person.Right >= operate.Look,
		Action: r.link("audit", nil),
	}
	for _, name := range inside.EventKinds {
		kind := letters.EventKind(name)
		view.Kinds = append(view.Kinds, kindOption{name, operate.EventWords(kind), slices.Contains(of.Filter.Kinds, kind)})
	}
	of.Filter.Limit = eventsAtOnce + 1
	events, err := c.desk.Audit(r.HTTP.Context(), r.who(""), of)
	if err != nil {
		return answer{}, err
	}
	q := url.Values{}
	for _, name := range operate.RecordFields[:7] {
		if some := operate.Filled(r.Query[name]); len(some) > 0 {
			q[name] = some
		}
	}
	view.CSV = r.link("audit/audit.csv", q)
	if of.Seq == 0 && len(events) > eventsAtOnce {
		events = events[:eventsAtOnce]
		q.Set("after", strconv.FormatInt(events[len(events)-1].Number, 10))
		view.Next = r.link("audit", q)
	}
	for _, e := range events {
		view.Events = append(view.Events, c.auditLine(r, e))
	}
	return answer{page: "audit", title: "Audit", view: view}, nil
}

func (c *console) auditLine(r *request, e letters.Event) auditLine {
	line := auditLine{EventData: operate.DataOfEvent(e), What: operate.EventWords(e.Kind)}
	if e.Seq > 0 {
		line.Letter = r.link("letters/"+id(e.Seq), nil)
	}
	switch {
	case discards.Made(e.RedriveID):
		line.Redrive = r.link(discards.path(e.RedriveID), nil)
	case restores.Made(e.RedriveID):
		line.Redrive = r.link(restores.path(e.RedriveID), nil)
	case e.RedriveID != "" && !operate.IsRequest(e.RedriveID):
		line.Redrive = r.link("campaigns/"+url.PathEscape(e.RedriveID), nil)
	}
	return line
}

// exporting is how long a file may take.
const exporting = 5 * time.Minute

// exportAudit sends the events that a filter chooses for a spreadsheet, the newest first, page by page: the server keeps
// one page in memory.
func (c *console) exportAudit(r *request) (answer, error) {
	of, err := r.record()
	if err != nil {
		return answer{}, err
	}
	write, err := c.desk.Export(r.HTTP.Context(), r.who(""), of) // before anything is sent, so that an error is a page
	return answer{file: &web.File{Kind: "text/csv; charset=utf-8", Name: "audit.csv", Write: func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 64<<10)
		line := func(cells []string) error { _, err := out.WriteString(csvLine(cells)); return err }
		err := line([]string{"number", "at", "kind", "seq", "id", "by", "reason", "redrive_id", "detail"})
		if err == nil {
			err = write(func(e operate.EventData) error { return line(cellsOf(e)) })
		}
		return errors.Join(err, out.Flush())
	}}}, err
}

// cellsOf are an event as a row of a spreadsheet, in which nothing is a formula.
func cellsOf(e operate.EventData) []string {
	cells := []string{strconv.FormatInt(e.Number, 10), operate.Stamp(e.At), e.Kind, strconv.FormatInt(e.Seq, 10), e.ID, e.By, e.Reason,
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
