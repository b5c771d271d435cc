package console

import (
	"context"
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/printable"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// maxShown is how many characters of a value a page shows, if its template names no other number.
const maxShown = 200

// functions are what templates call. All that came with a message goes through v or block.
func (c *console) functions() template.FuncMap {
	return template.FuncMap{
		"status":  operate.StatusWords,
		"outcome": operate.OutcomeWords,
		"say":     say,
		"letters": lettersOf,
		"n":       grouped[int],
		"size":    size[int],
		"bytes":   bytesOf,
		"when":    when,
		"v":       c.value,
		"plain":   c.plain,
		"role":    operate.Right.String,
		"reason":  reasonField,
		"hint":    func() string { return reasonHint },
		"short":   shortName,
		"lines":   func(s string) string { return printable.Block(c.desk.Masks.Text(s)) },
	}
}

// value is a value of a message in a line: masked, bounded, without characters that a browser obeys, and apart from the
// text around it, whose direction it cannot change.
func (c *console) value(s string, most ...int) template.HTML {
	limit := maxShown
	if len(most) > 0 {
		limit = most[0]
	}
	shown, whole := c.shown(s, limit)
	if shown == "" {
		return template.HTML(`<span class="none">` + template.HTMLEscapeString("–") + `</span>`)
	}
	if whole != "" {
		return template.HTML(`<bdi title="` + template.HTMLEscapeString(whole) + `">` + template.HTMLEscapeString(shown) +
			`</bdi>`)
	}
	return template.HTML(`<bdi>` + template.HTMLEscapeString(shown) + `</bdi>`)
}

// shown returns a value as one line of at most limit characters, and more of it if that is not all.
func (c *console) shown(s string, limit int) (line, whole string) {
	line = printable.Text(c.desk.Masks.Text(s))
	if utf8.RuneCountInString(line) <= limit {
		return line, ""
	}
	return firstRunes(line, limit) + "…", firstRunes(line, 10*limit)
}

var names = regexp.MustCompile(`^[A-Za-z0-9_.:/-]{1,24}$`)

// shortName is the class of a cell whose value is a name that a wide table does not break.
func shortName(s string) string {
	if names.MatchString(s) {
		return "short"
	}
	return ""
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}

// grouped writes a number with commas: 1,312.
func grouped[N int | int64](n N) string {
	digits, sign := fmt.Sprint(n), ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// size writes a number of bytes.
func size[N int | int64](n N) string {
	switch {
	case n < 1<<10:
		return say("%s byte|%s bytes", int(n))
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// lettersOf writes a number of letters.
func lettersOf(n int) string { return say("%s letter|%s letters", n) }

// bytesOf writes a number of bytes.
func bytesOf(n int) string { return say("%s byte|%s bytes", n) }

const clock = "2006-01-02 15:04:05"

// when is a moment: in UTC, and with the script in the viewer's zone.
func when(t time.Time) template.HTML {
	if t.IsZero() || t.Year() < 1 || t.Year() > 9999 {
		return template.HTML(`<span class="none">` + template.HTMLEscapeString("–") + `</span>`)
	}
	t = t.UTC()
	return template.HTML(`<time datetime="` + t.Format("2006-01-02T15:04:05Z") + `" title="` + t.Format(clock) + ` UTC">` +
		t.Format(clock) + `</time>`)
}

// age writes how long something took, or is ago, in its greatest unit.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "in the future"
	case d < time.Minute:
		return "less than a minute"
	case d < time.Hour:
		return say("%s min", int(d/time.Minute))
	case d < 48*time.Hour:
		return say("%s hour|%s hours", int(d/time.Hour))
	}
	return say("%s day|%s days", int(d/(24*time.Hour)))
}

// say fills a text. Numbers in it are grouped. If it has two forms, with a bar between them, the first number says
// which is meant.
func say(form string, args ...any) string {
	one, many, plural := strings.Cut(form, "|")
	if plural {
		if form = many; len(args) > 0 && fmt.Sprint(args[0]) == "1" {
			form = one
		}
	}
	shown := make([]any, len(args))
	for i, arg := range args {
		switch n := arg.(type) {
		case int:
			shown[i] = grouped(n)
		case int64:
			shown[i] = grouped(n)
		default:
			shown[i] = arg
		}
	}
	return fmt.Sprintf(form, shown...)
}

// colour is the class of a series in a chart, and of its place in the legend.
func colour(series int) string { return "s" + strconv.Itoa(series) }

// id is a Seq as addresses have it.
func id(seq int64) string { return strconv.FormatInt(seq, 10) }

// fieldExact is the field of an address that asks for a number, however long it takes.
const fieldExact = "exact"

// patience is how long a page waits for a number that a person decides by: longer than a list does, and longest if the
// person asks.
func (c *console) patience(r *request, usual time.Duration) time.Duration {
	if r.Query.Get(fieldExact) != "" {
		return c.timeout / 4
	}
	return usual
}

// careful is how much longer than a list the page of a decision waits for a number.
const careful = 10

// chosen counts the letters of a selection that are there now, for a decision about them.
func (c *console) chosen(r *request, s operate.Selection) operate.Number {
	return c.chosenWithin(r, s, careful*c.counting)
}

// chosenWithin counts the letters of a selection that are there now, if that does not take longer.
func (c *console) chosenWithin(r *request, s operate.Selection, usual time.Duration) operate.Number {
	ctx, cancel := context.WithTimeout(r.HTTP.Context(), c.patience(r, usual))
	defer cancel()
	return c.desk.Count(ctx, s)
}

// numberOf counts what a filter chooses, if that does not take long.
func (c *console) numberOf(r *request, f letters.Filter) operate.Number {
	return c.chosen(r, operate.Selection{Filter: f})
}

// exactLink is the address of a page that counts, however long it takes.
func (r *request) exactLink(path string, q url.Values) string {
	return r.link(path, merged(q, url.Values{fieldExact: {"1"}}))
}

// act is a link to the page that asks before something is done with all letters of a cause.
type act struct{ Label, Link, Class string }

// acts are what the person may do with the letters of a filter, and links to it.
func (c *console) acts(r *request, f letters.Filter, n int) (acts []act) {
	if n == 0 || f.MaxSeq == 0 {
		return nil
	}
	to := operate.Selection{Filter: f, Number: n}.Values()
	for _, d := range c.doable(r, f.Statuses) {
		one := act{d.word, r.link(d.name, to), d.class}
		if d.all {
			one.Label = d.word + " " + grouped(n)
		}
		acts = append(acts, one)
	}
	return acts
}

// doing is something that can be done with letters: some is which of a list it takes, if it does not take all.
type doing struct {
	name, word, some, class string
	from                    []letters.Status
	all                     bool // letters of these states
}

// doable are what the person may do with letters in these states.
func (c *console) doable(r *request, statuses []letters.Status) (some []doing) {
	for _, d := range []doing{
		{name: "redrive", word: "Redrive", from: operate.Redrivable},
		{name: restores.Name, word: restores.Title, some: " the discarded", from: restores.From},
		{name: discards.Name, word: discards.Title, class: "danger", from: discards.From},
	} {
		takes, all := operate.Among(statuses, d.from)
		if d.all = all; takes && c.can(r.Person, d.name) {
			some = append(some, d)
		}
	}
	return some
}
