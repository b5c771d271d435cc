package console

import (
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// happenedTo is how many letters the console looks at to say who was first.
const happenedTo = 50

// happened says who did what to the letters of a selection that an action found changed, for the one who came second.
// It says nothing if that is not known, or not the same for all that it looks at.
func (c *Console) happened(r *request, s operate.Selection) string {
	s.Filter.Statuses = letters.Statuses()
	heads, err := c.sampleOf(r.Context(), s, happenedTo)
	if err != nil {
		c.log(r, err)
		return ""
	}
	if len(heads) == 0 {
		return "They are not there any more: they were purged."
	}
	first := heads[0]
	for _, h := range heads[1:] {
		if h.Status != first.Status || h.Marked.By != first.Marked.By || h.Marked.Reason != first.Marked.Reason ||
			h.LeasedBy != first.LeasedBy {
			return "Different things happened to them: the list of the letters has who did what."
		}
	}
	state := operate.StatusWords(first.Status)
	switch {
	case first.LeasedBy != "":
		return say("A program works on them now: %s.", c.plain(first.LeasedBy))
	case first.Marked.At.IsZero():
		return ""
	case first.Marked.Reason == "":
		return say("The state is now: %s, by %s.", state, c.plain(first.Marked.By))
	}
	return say("The state is now: %s, by %s, for this reason: %s.", state, c.plain(first.Marked.By),
		c.plain(first.Marked.Reason))
}

// happenedUnless is happened, unless a reason is known already.
func (c *Console) happenedUnless(r *request, s operate.Selection, known bool) string {
	if known {
		return ""
	}
	return c.happened(r, s)
}

// plain is a value of a message, or of a person, within a text.
func (c *Console) plain(s string) string {
	line, _ := c.shown(s, maxShown)
	return line
}
