package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/web"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// filter reads the filter of the query, if the person may search by it.
func (h *Handler) filter(r *request) (letters.Filter, error) {
	f, err := operate.ParseFilter(r.Query, r.Now)
	if err == nil {
		err = r.Person.MaySearch(f, h.Desk.Masks)
	}
	return f, err
}

// mostSkipped bounds how many causes a page is behind.
const mostSkipped = 1_000_000

// causes lists why letters failed.
func (h *Handler) causes(r *request) (answer, error) {
	f, err := h.filter(r)
	if err == nil {
		f.Limit, err = limit(r.Query, operate.MostCauses)
	}
	if err != nil {
		return answer{}, err
	}
	skip, err := after(r.Query)
	if err != nil {
		return answer{}, err
	}
	if skip > mostSkipped {
		return answer{}, operate.WrongValue("after", strconv.FormatInt(skip, 10), "use at most "+
			strconv.Itoa(mostSkipped)+", or choose fewer causes")
	}
	if begin := r.Query.Get("begins"); begin != "" {
		if len(r.Query) > 1 {
			return answer{}, errAlone
		}
		groups, err := h.Desk.CausesBegin(r.HTTP.Context(), begin)
		v, err := h.causesData(r, groups, err)
		return answer{json: v}, err
	}
	groups, err := h.Desk.Causes(r.HTTP.Context(), f, int(skip))
	v, err := h.causesData(r, groups, err)
	if len(groups) == f.Limit {
		v.Next = strconv.FormatInt(skip+int64(len(groups)), 10)
	}
	return answer{json: v}, err
}

var errAlone = invalid("begins", "stands alone: leave out the other fields")

func (h *Handler) causesData(r *request, groups []letters.Group, err error) (operate.CausesData, error) {
	v := operate.CausesData{Causes: []operate.CauseData{}}
	if err != nil {
		return v, err
	}
	noted, err := h.Desk.Noted(r.HTTP.Context(), groups)
	v.Causes = append(v.Causes, noted...)
	return v, err
}

// noteCause changes what persons say of a cause.
func (h *Handler) noteCause(r *request, body operate.CauseBody) (answer, error) {
	c := inside.CauseChange{Note: body.Note, Owner: body.Owner, Link: body.Link, SnoozedUntil: body.SnoozedUntil}
	if body.Unsnooze {
		if c.SnoozedUntil != nil {
			return answer{}, invalid("unsnooze", "is true, and snoozed_until is given: give one of them")
		}
		c.SnoozedUntil = new(time.Time)
	}
	v, err := h.Desk.ChangeCause(r.HTTP.Context(), r.who(body.Reason), r.HTTP.PathValue("cause"), c)
	return answer{json: v}, err
}

// letters lists letters.
func (h *Handler) letters(r *request) (answer, error) {
	f, err := h.filter(r)
	if err != nil {
		return answer{}, err
	}
	n, err := limit(r.Query, mostLimit)
	if err != nil {
		return answer{}, err
	}
	if f.NewestFirst, err = order(r.Query, "oldest"); err != nil {
		return answer{}, err
	}
	if f.After, err = after(r.Query); err != nil {
		return answer{}, err
	}
	f.Limit = min(n+1, letters.MaxLimit) // one more says whether there is a next page
	heads, err := h.Desk.Store.Heads(r.HTTP.Context(), f)
	if err != nil {
		return answer{}, err
	}
	v := operate.LettersData{Letters: []operate.LetterData{}}
	if len(heads) > n || len(heads) == letters.MaxLimit {
		heads = heads[:min(n, len(heads))]
		v.Next = strconv.FormatInt(heads[len(heads)-1].Seq, 10)
	}
	for _, head := range heads {
		v.Letters = append(v.Letters, h.Desk.Head(head))
	}
	return answer{json: v}, nil
}

// count counts the letters of a filter, if that does not take long.
func (h *Handler) count(r *request) (answer, error) {
	f, err := h.filter(r)
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(r.HTTP.Context(), h.Front.Timeout()/4)
	defer cancel()
	s, err := h.Desk.Freeze(ctx, f)
	v := operate.CountData{MaxSeq: s.Filter.MaxSeq}
	switch {
	case err == nil:
		v.Counted, v.Count = true, &s.Number
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && r.HTTP.Context().Err() == nil && v.MaxSeq > 0:
		err = nil
	}
	return answer{json: v}, err
}

// one returns the letter that the address names.
func (h *Handler) one(r *request) (l operate.Letter, err error) {
	seq, err := r.seq()
	if err != nil {
		return l, err
	}
	return h.Desk.Letter(r.HTTP.Context(), seq)
}

// seq is the number in the address.
func (r *request) seq() (int64, error) {
	seq, err := strconv.ParseInt(r.HTTP.PathValue("seq"), 10, 64)
	if err != nil || seq <= 0 {
		return 0, missing("The address names a letter by a number from 1 on.")
	}
	return seq, nil
}

// letter sends a letter with its record, masked.
func (h *Handler) letter(r *request) (answer, error) {
	l, err := h.one(r)
	if err != nil {
		return answer{}, err
	}
	events, err := h.Desk.Store.History(r.HTTP.Context(), l.Seq)
	if err != nil {
		return answer{}, err
	}
	v := h.Desk.Data(r.HTTP.Context(), r.Person, l, events)
	v.Version = operate.VersionOf(l.Letter)
	return answer{json: v}, nil
}

func eventsOf(events []letters.Event) operate.EventsData {
	v := operate.EventsData{Events: []operate.EventData{}}
	for _, e := range events {
		v.Events = append(v.Events, operate.DataOfEvent(e))
	}
	return v
}

// withPayload returns the letter that the address names, with a payload that can be read.
func (h *Handler) withPayload(r *request) (operate.Letter, error) {
	l, err := h.one(r)
	switch {
	case err != nil:
		return l, err
	case l.Closed != nil:
		return l, &operate.Problem{Status: http.StatusConflict, Type: operate.ProblemSealed,
			Title:  "The letter is sealed",
			Detail: "The payload cannot be opened here: " + h.Desk.Masks.Text(l.WhyClosed())}
	case l.Status == letters.StatusErased:
		return l, &operate.Problem{Status: http.StatusGone, Type: operate.ProblemErased, Title: "The payload is erased",
			Detail: "The payload and the metadata of this letter were erased."}
	}
	return l, nil
}

// payload sends the exact bytes of a payload, if none of them is masked.
func (h *Handler) payload(r *request) (answer, error) {
	l, err := h.withPayload(r)
	if err != nil {
		return answer{}, err
	}
	if h.Desk.Hides(l.Original.Payload, h.Desk.Decoded(r.HTTP.Context(), l.Letter)) {
		return answer{}, &operate.Problem{Status: http.StatusForbidden, Type: operate.ProblemMasked,
			Title: "The payload is masked", Detail: "The payload has values that are masked. With the right to operate, a POST " +
				"with a reason sends it, on record."}
	}
	return exactBytes(l), nil
}

// unmasked sends the exact bytes of a payload, also if they are masked elsewhere, and records it.
func (h *Handler) unmasked(r *request, body operate.ReasonBody) (answer, error) {
	l, err := h.withPayload(r)
	if err == nil {
		err = h.Desk.Show(r.HTTP.Context(), r.who(body.Reason), l.Seq)
	}
	if err != nil {
		return answer{}, err
	}
	return exactBytes(l), nil
}

func exactBytes(l operate.Letter) answer {
	return answer{file: web.Bytes("letter-"+strconv.FormatInt(l.Seq, 10)+".bin", l.Original.Payload)}
}
