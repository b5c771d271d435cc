package console

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	lettersShown = 50
	mostLetters  = 500
)

// listFields are the fields of the list that are no filter, and that its links keep.
var listFields = []string{"rows", "order"}

// newest is the order of a list that is turned around.
const newest = "newest"

// letters lists letters in the order in which they arrived, or the other way round, and lets a person choose some of
// them, or all that match.
func (c *console) letters(r *request) (answer, error) {
	v, err := c.lettersOf(r)
	title := "Letters"
	if v.Cause != nil {
		title = "Letters of one cause"
	}
	return answer{page: "letters", title: title, view: v}, err
}

type letterList struct {
	Cause   *causeFacts // if the list has letters of one cause
	Form    filterForm
	States  bool // the list has letters of several states
	Rows    []letterRow
	Number  int  // of all that match, if Counted
	Counted bool // false if counting took too long
	Exact   string
	Newest  bool
	Turn    string // link to the list in the other order
	First   string // link to the first page, if this is another
	Next    string
	All     []field // the selection of all that match
	Actions []listAction
	Any     bool // the person may do something with letters of the list
}

type letterRow struct {
	operate.LetterData
	Link, State string
	Chosen      bool
}

func (c *console) lettersOf(r *request) (v letterList, err error) {
	q := r.Query
	f, err := r.filter(q)
	if err != nil {
		return v, err
	}
	if after := q.Get("after"); after != "" {
		if f.After, err = strconv.ParseInt(after, 10, 64); err != nil || f.After < 0 {
			return v, badInput("The address of the page is damaged. Begin with the first page.")
		}
	}
	switch order := q.Get("order"); order {
	case "", "oldest":
	case newest:
		f.NewestFirst = true
	default:
		return v, badInput(say("The order %q is not known: use oldest or newest.", boundedtext.Text(order, 100)))
	}
	show := rows(q, lettersShown, mostLetters)
	v.Form = r.filterForm("letters", q, listFields...)
	v.Form.Clear = r.link("letters", only(q, listFields...))
	if v.Cause, err = c.causeOf(r, f); err != nil {
		return v, err
	}
	if v.Cause != nil { // stands above the list
		v.Form.Chips = slices.DeleteFunc(v.Form.Chips, func(one chip) bool { return one.Name == "cause" })
	}
	v.States = len(f.Statuses) > 1
	whole := f
	whole.After, whole.NewestFirst = 0, false
	if err := c.number(r, &v, whole); err != nil {
		return v, err
	}
	page := f
	page.Limit = show + 1 // one more says whether there is a next page
	heads, err := c.desk.Store.Heads(r.HTTP.Context(), page)
	if err != nil {
		return v, err
	}
	keep := merged(operate.FilterValues(whole), only(q, listFields...))
	v.Newest, v.Turn = f.NewestFirst, r.link("letters", turned(keep, f.NewestFirst))
	if f.After > 0 {
		v.First = r.link("letters", keep)
	}
	if len(heads) > show {
		heads = heads[:show]
		v.Next = r.link("letters", merged(keep, url.Values{"after": {id(heads[show-1].Seq)}}))
	}
	for _, head := range heads {
		v.Rows = append(v.Rows, letterRow{c.desk.Head(head), r.link("letters/"+id(head.Seq), nil),
			operate.StatusWords(head.Status), slices.Contains(q["seq"], id(head.Seq))})
	}
	v.Actions = c.listActions(r, f.Statuses, v.Number)
	v.Any = len(v.Actions) > 0
	return v, nil
}

// listAction is what a person can do with letters of a list: with all that match, or with the chosen ones.
type listAction struct {
	Name, Link  string
	All, Chosen string // what the buttons say
	Class       string // of the style
}

// listActions are what the person may do with letters of a list.
func (c *console) listActions(r *request, statuses []letters.Status, number int) (actions []listAction) {
	for _, d := range c.doable(r, statuses) {
		one := listAction{Name: d.name, Link: r.link(d.name, nil), All: d.word + d.some + " letters of this list",
			Chosen: d.word + " the chosen letters", Class: cmp.Or(d.class, "main")}
		if d.all {
			one.All = say(d.word+" the %s letter that matches|"+d.word+" all %s letters that match", number)
		}
		actions = append(actions, one)
	}
	return actions
}

// number says how many letters match, and freezes the selection of all of them: those up to the last Seq. Letters that
// arrived while they were counted would be in the number and not in the selection, so it counts again then. Some
// filters read each letter: the page does not wait for their operate.Number, unless the person asks.
func (c *console) number(r *request, v *letterList, f letters.Filter) error {
	ctx, cancel := r.HTTP.Context(), context.CancelFunc(func() {})
	if r.Query.Get(fieldExact) == "" {
		ctx, cancel = context.WithTimeout(ctx, c.counting)
	}
	defer cancel()
	s, err := c.desk.Freeze(ctx, f)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && r.HTTP.Context().Err() == nil {
		v.Exact = r.link("letters", merged(operate.FilterValues(f), only(r.Query, listFields...),
			url.Values{fieldExact: {"1"}}))
		return nil
	}
	if err != nil {
		return err
	}
	v.Number, v.Counted = s.Number, true
	if s.Number > 0 && s.Filter.MaxSeq > 0 {
		v.All = hiddenFields(s.Values())
	}
	return nil
}

// turned is the query of a list in the other order, from its beginning.
func turned(q url.Values, isNewest bool) url.Values {
	other := merged(q)
	if delete(other, "order"); !isNewest {
		other.Set("order", newest)
	}
	return other
}

// only are the fields of a query that are named.
func only(q url.Values, names ...string) url.Values {
	some := url.Values{}
	for _, name := range names {
		if values := operate.Filled(q[name]); len(values) > 0 {
			some[name] = values
		}
	}
	return some
}

func merged(all ...url.Values) url.Values {
	sum := url.Values{}
	for _, q := range all {
		for name, values := range q {
			sum[name] = slices.Concat(sum[name], values)
		}
	}
	return sum
}
