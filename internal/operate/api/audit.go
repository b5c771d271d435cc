package api

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/web"
)

// exporting is how long an export may take.
const exporting = 5 * time.Minute

// record is which entries of the record a request asks for.
func (r *request) record() (operate.Record, error) {
	of, err := operate.ParseRecord(r.query, r.now)
	if err != nil {
		return of, err
	}
	of.Filter.NewestFirst, err = order(r.query, "newest")
	return of, err
}

// audit lists entries of the record.
func (h *Handler) audit(r *request) (answer, error) {
	of, err := r.record()
	if err != nil {
		return answer{}, err
	}
	if of.Filter.After, err = after(r.query); err != nil {
		return answer{}, err
	}
	n, err := limit(r.query, mostLimit)
	if err != nil {
		return answer{}, err
	}
	of.Filter.Limit = n
	events, err := h.Desk.Audit(r.http.Context(), r.person, of)
	v := eventsOf(events)
	if of.Seq == 0 && len(events) == n {
		v.Next = strconv.FormatInt(events[n-1].Number, 10)
	}
	return answer{json: v}, err
}

// export sends entries of the record, a line each.
func (h *Handler) export(r *request) (answer, error) {
	of, err := r.record()
	if err != nil {
		return answer{}, err
	}
	each, err := h.Desk.Export(r.http.Context(), r.person, of)
	if err != nil {
		return answer{}, err
	}
	return answer{file: &web.File{Kind: "application/jsonl", Name: "audit.jsonl", Write: func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 64<<10)
		lines := json.NewEncoder(out)
		err := each(func(e operate.EventData) error { return lines.Encode(e) })
		return errors.Join(err, out.Flush())
	}}}, nil
}
