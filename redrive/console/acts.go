package console

import (
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// act is a link to the page that asks before something is done with all letters of a cause.
type act struct{ Label, Link, Class string }

// acts are what the person can do with n letters that a filter chooses. The label of one that takes not all of them says
// no number.
func (c *console) acts(r *request, f letters.Filter, n int) (acts []act) {
	if n == 0 || f.MaxSeq == 0 {
		return nil
	}
	to := operate.Selection{Filter: f, Number: n}.Values()
	add := func(name, word, class string, from []letters.Status) {
		takes, all := operate.Among(f.Statuses, from)
		if !takes || !c.can(r.person, name) {
			return
		}
		one := act{word, r.link(name, to), class}
		if all {
			one.Label = word + " " + grouped(n)
		}
		acts = append(acts, one)
	}
	add("redrive", "Redrive", "", operate.Redrivable)
	add(restores.Name, restores.Title, "", restores.From)
	add(discards.Name, discards.Title, "danger", discards.From)
	return acts
}
