package console

import (
	"context"
	"errors"
	"html/template"
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
var listFields = []string{"column", "rows", "order"}

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
	Columns []option // to choose from
	Keep    []field  // of the form that chooses columns
	Heads   []column
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
	Seq    int64
	ID     string
	Link   string
	Chosen bool
	Cells  []cell
}

type cell struct {
	Label string
	Value template.HTML
	Class string
}

func (c *console) lettersOf(r *request) (v letterList, err error) {
	q := r.query
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
	v.Heads, v.Columns = chooseColumns(operate.Filled(q["column"]), len(f.Statuses) > 1, v.Cause != nil)
	v.Keep = hiddenFields(merged(operate.FilterValues(f), only(q, "rows", "order")))

	whole := f
	whole.After, whole.NewestFirst = 0, false
	if err := c.number(r, &v, whole); err != nil {
		return v, err
	}
	page := f
	page.Limit = show + 1 // one more says whether there is a next page
	heads, err := c.desk.Store.Heads(r.http.Context(), page)
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
		h := c.desk.Head(head)
		row := letterRow{Seq: h.Seq, ID: h.ID, Link: r.link("letters/"+id(h.Seq), nil),
			Chosen: slices.Contains(q["seq"], id(h.Seq))}
		for _, column := range v.Heads {
			class := column.Class
			if column.name != nil {
				class = shortName(column.name(&h))
			}
			row.Cells = append(row.Cells, cell{column.Label, column.value(c, &h), class})
		}
		v.Rows = append(v.Rows, row)
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

// listActions are the actions that take letters of the list. The button of one that takes not all of them says no
// number.
func (c *console) listActions(r *request, statuses []letters.Status, number int) (actions []listAction) {
	add := func(name, word, some, class string, from []letters.Status) {
		takes, all := operate.Among(statuses, from)
		if !takes || !c.can(r.person, name) {
			return
		}
		one := listAction{Name: name, Link: r.link(name, nil), All: word + some + " letters of this list",
			Chosen: word + " the chosen letters", Class: class}
		if all {
			one.All = say(word+" the %s letter that matches|"+word+" all %s letters that match", number)
		}
		actions = append(actions, one)
	}
	add("redrive", "Redrive", "", "main", operate.Redrivable)
	add(restores.Name, restores.Title, " the discarded", "main", restores.From)
	add(discards.Name, discards.Title, "", "danger", discards.From)
	return actions
}

// number says how many letters match, and freezes the selection of all of them: those up to the last Seq. Letters that
// arrived while they were counted would be in the number and not in the selection, so it counts again then. Some
// filters read each letter: the page does not wait for their operate.Number, unless the person asks.
func (c *console) number(r *request, v *letterList, f letters.Filter) error {
	ctx, cancel := r.http.Context(), context.CancelFunc(func() {})
	if r.query.Get(fieldExact) == "" {
		ctx, cancel = context.WithTimeout(ctx, c.counting)
	}
	defer cancel()
	s, err := c.desk.Freeze(ctx, f)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && r.http.Context().Err() == nil {
		v.Exact = r.link("letters", merged(operate.FilterValues(f), only(r.query, listFields...),
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

// column is a column of the list of letters.
type column struct {
	Name, Label, Class string
	usual              bool
	same               bool                             // for all letters of a cause
	name               func(*operate.LetterData) string // of a column whose short values are not broken
	value              func(*console, *operate.LetterData) template.HTML
}

// columns returns all columns, in their order. The id of the message is there always.
func columns() []column {
	shown := func(of func(*operate.LetterData) string, most int) func(*console, *operate.LetterData) template.HTML {
		return func(c *console, h *operate.LetterData) template.HTML { return c.value(of(h), most) }
	}
	plain := func(of func(*operate.LetterData) string) func(*console, *operate.LetterData) template.HTML {
		return func(_ *console, h *operate.LetterData) template.HTML {
			return template.HTML(template.HTMLEscapeString(of(h)))
		}
	}
	named := []column{
		{Name: "last", Label: "Last failure", usual: true, value: func(_ *console, h *operate.LetterData) template.HTML {
			return when(h.LastFailedAt)
		}},
		{Name: "handler", Label: "Handler", usual: true, same: true, name: func(h *operate.LetterData) string { return h.Handler }},
		{Name: "topic", Label: "Topic", usual: true, same: true, name: func(h *operate.LetterData) string { return h.Topic }},
		{Name: "reason", Label: "Reason", usual: true, same: true, name: func(h *operate.LetterData) string { return h.Reason }},
		{Name: "description", Label: "Description", usual: true,
			value: shown(func(h *operate.LetterData) string { return h.Description }, 120)},
		{Name: "class", Label: "Class", value: plain(func(h *operate.LetterData) string { return h.Class })},
		{Name: "type", Label: "Error type", value: shown(func(h *operate.LetterData) string { return h.Type }, 60)},
		{Name: "status", Label: "Status", value: plain(func(h *operate.LetterData) string { return operate.StatusWords(letters.Status(h.Status)) })},
		{Name: "first", Label: "First failure", value: func(_ *console, h *operate.LetterData) template.HTML {
			return when(h.FirstFailedAt)
		}},
		{Name: "stored", Label: "Stored", value: func(_ *console, h *operate.LetterData) template.HTML {
			return when(h.StoredAt)
		}},
		{Name: "seen", Label: "Seen", Class: "number",
			value: plain(func(h *operate.LetterData) string { return grouped(h.Seen) })},
		{Name: "size", Label: "Size", Class: "number", value: plain(func(h *operate.LetterData) string { return size(h.Bytes) })},
		{Name: "dead-letter-topic", Label: "Dead-letter topic",
			name: func(h *operate.LetterData) string { return h.DeadLetterTopic }},
		{Name: "cause", Label: "Cause", value: shown(func(h *operate.LetterData) string { return h.Cause }, 8)},
		{Name: "marked", Label: "Changed by", name: func(h *operate.LetterData) string { return h.MarkedBy }},
		{Name: "why", Label: "Why it changed", value: shown(func(h *operate.LetterData) string { return h.MarkedReason }, 80)},
		{Name: "lease", Label: "In hand of", value: shown(func(h *operate.LetterData) string { return h.LeasedBy }, 40)},
		{Name: "key", Label: "Seal key", name: func(h *operate.LetterData) string { return h.SealKey }},
		{Name: "seq", Label: "Seq", Class: "number", value: plain(func(h *operate.LetterData) string { return id(h.Seq) })},
	}
	for i := range named {
		if named[i].name != nil {
			named[i].value = shown(named[i].name, 40)
		}
	}
	return named
}

// chooseColumns returns the columns that a person asks for, or the usual ones, and all of them to choose from. A list
// of several statuses shows them, and one of a cause leaves out what all its letters have in common.
func chooseColumns(asked []string, statuses, cause bool) (chosen []column, options []option) {
	for _, one := range columns() {
		checked := slices.Contains(asked, one.Name)
		if len(asked) == 0 {
			checked = one.usual && !(cause && one.same) || statuses && one.Name == "status"
		}
		if checked {
			chosen = append(chosen, one)
		}
		options = append(options, option{"column", one.Name, one.Label, checked})
	}
	return chosen, options
}
