package console

import (
	"html/template"
	"slices"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// column is a column of the list of letters.
type column struct {
	Name, Label, Class string
	usual              bool
	name               func(*letters.Head) string // of a column whose short values are not broken
	value              func(*Console, *letters.Head) template.HTML
}

// columns returns all columns, in their order. The id of the message is there always.
func columns() []column {
	shown := func(of func(*letters.Head) string, most int) func(*Console, *letters.Head) template.HTML {
		return func(c *Console, h *letters.Head) template.HTML { return c.value(of(h), most) }
	}
	plain := func(of func(*letters.Head) string) func(*Console, *letters.Head) template.HTML {
		return func(_ *Console, h *letters.Head) template.HTML {
			return template.HTML(template.HTMLEscapeString(of(h)))
		}
	}
	named := []column{
		{Name: "last", usual: true, value: func(_ *Console, h *letters.Head) template.HTML { return when(h.LastFailedAt) }},
		{Name: "handler", usual: true, name: func(h *letters.Head) string { return h.Handler }},
		{Name: "topic", usual: true, name: func(h *letters.Head) string { return h.Topic }},
		{Name: "reason", usual: true, name: func(h *letters.Head) string { return h.Reason }},
		{Name: "description", usual: true, value: shown(func(h *letters.Head) string { return h.Description }, 120)},
		{Name: "class", value: plain(func(h *letters.Head) string { return h.Class.String() })},
		{Name: "type", value: shown(func(h *letters.Head) string { return h.Type }, 60)},
		{Name: "status", value: plain(func(h *letters.Head) string { return text("status." + string(h.Status)) })},
		{Name: "first", value: func(_ *Console, h *letters.Head) template.HTML { return when(h.FirstFailedAt) }},
		{Name: "stored", value: func(_ *Console, h *letters.Head) template.HTML { return when(h.StoredAt) }},
		{Name: "seen", Class: "number", value: plain(func(h *letters.Head) string { return grouped(h.Seen) })},
		{Name: "size", Class: "number", value: plain(func(h *letters.Head) string { return size(h.Size) })},
		{Name: "dead-letter-topic", name: func(h *letters.Head) string { return h.DeadLetterTopic }},
		{Name: "cause", value: shown(func(h *letters.Head) string { return h.Cause }, 8)},
		{Name: "marked", name: func(h *letters.Head) string { return h.Marked.By }},
		{Name: "why", value: shown(func(h *letters.Head) string { return h.Marked.Reason }, 80)},
		{Name: "lease", value: shown(func(h *letters.Head) string { return h.LeasedBy }, 40)},
		{Name: "key", name: func(h *letters.Head) string { return h.SealKey }},
		{Name: "seq", Class: "number", value: plain(func(h *letters.Head) string { return id(h.Seq) })},
	}
	for i := range named {
		if named[i].name != nil {
			named[i].value = shown(named[i].name, 40)
		}
		named[i].Label = text("column." + named[i].Name)
	}
	return named
}

// chooseColumns returns the columns that a person asks for, or the usual ones, and all of them to choose from. A list
// of several statuses shows them.
func chooseColumns(asked []string, statuses bool) (chosen []column, options []option) {
	for _, one := range columns() {
		checked := slices.Contains(asked, one.Name)
		if len(asked) == 0 {
			checked = one.usual || statuses && one.Name == "status"
		}
		if checked {
			chosen = append(chosen, one)
		}
		options = append(options, option{"column", one.Name, one.Label, checked})
	}
	return chosen, options
}
