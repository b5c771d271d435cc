package console

import (
	"html/template"
	"slices"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// column is a column of the list of letters.
type column struct {
	Name, Label, Class string
	usual              bool
	same               bool                       // for all letters of a cause
	name               func(*letters.Head) string // of a column whose short values are not broken
	value              func(*console, *letters.Head) template.HTML
}

// columns returns all columns, in their order. The id of the message is there always.
func columns() []column {
	shown := func(of func(*letters.Head) string, most int) func(*console, *letters.Head) template.HTML {
		return func(c *console, h *letters.Head) template.HTML { return c.value(of(h), most) }
	}
	plain := func(of func(*letters.Head) string) func(*console, *letters.Head) template.HTML {
		return func(_ *console, h *letters.Head) template.HTML {
			return template.HTML(template.HTMLEscapeString(of(h)))
		}
	}
	named := []column{
		{Name: "last", Label: "Last failure", usual: true, value: func(_ *console, h *letters.Head) template.HTML {
			return when(h.LastFailedAt)
		}},
		{Name: "handler", Label: "Handler", usual: true, same: true, name: func(h *letters.Head) string { return h.Handler }},
		{Name: "topic", Label: "Topic", usual: true, same: true, name: func(h *letters.Head) string { return h.Topic }},
		{Name: "reason", Label: "Reason", usual: true, same: true, name: func(h *letters.Head) string { return h.Reason }},
		{Name: "description", Label: "Description", usual: true,
			value: shown(func(h *letters.Head) string { return h.Description }, 120)},
		{Name: "class", Label: "Class", value: plain(func(h *letters.Head) string { return h.Class.String() })},
		{Name: "type", Label: "Error type", value: shown(func(h *letters.Head) string { return h.Type }, 60)},
		{Name: "status", Label: "Status", value: plain(func(h *letters.Head) string { return operate.StatusWords(h.Status) })},
		{Name: "first", Label: "First failure", value: func(_ *console, h *letters.Head) template.HTML {
			return when(h.FirstFailedAt)
		}},
		{Name: "stored", Label: "Stored", value: func(_ *console, h *letters.Head) template.HTML {
			return when(h.StoredAt)
		}},
		{Name: "seen", Label: "Seen", Class: "number",
			value: plain(func(h *letters.Head) string { return grouped(h.Seen) })},
		{Name: "size", Label: "Size", Class: "number", value: plain(func(h *letters.Head) string { return size(h.Size) })},
		{Name: "dead-letter-topic", Label: "Dead-letter topic",
			name: func(h *letters.Head) string { return h.DeadLetterTopic }},
		{Name: "cause", Label: "Cause", value: shown(func(h *letters.Head) string { return h.Cause }, 8)},
		{Name: "marked", Label: "Changed by", name: func(h *letters.Head) string { return h.Marked.By }},
		{Name: "why", Label: "Why it changed", value: shown(func(h *letters.Head) string { return h.Marked.Reason }, 80)},
		{Name: "lease", Label: "In hand of", value: shown(func(h *letters.Head) string { return h.LeasedBy }, 40)},
		{Name: "key", Label: "Seal key", name: func(h *letters.Head) string { return h.SealKey }},
		{Name: "seq", Label: "Seq", Class: "number", value: plain(func(h *letters.Head) string { return id(h.Seq) })},
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
