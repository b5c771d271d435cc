package console

import "github.com/watermill-spillway/spillway/internal/operate"

// happened says who did what to the letters of a selection that an action found changed, for the one who came second.
// It says nothing if that is not known.
func (c *console) happened(r *request, s operate.Selection) string {
	h, err := c.desk.Happened(r.http.Context(), s)
	switch {
	case err != nil:
		c.log(r, err)
		return ""
	case h.Gone:
		return "They are not there any more: they were purged."
	case h.Various:
		return "Different things happened to them: the list of the letters has who did what."
	case h.LeasedBy != "":
		return say("A program works on them now: %s.", c.plain(h.LeasedBy))
	case h.MarkedAt.IsZero():
		return ""
	case h.Marked.Reason == "":
		return say("The state is now: %s, by %s.", operate.StatusWords(h.Status), c.plain(h.Marked.By))
	}
	return say("The state is now: %s, by %s, for this reason: %s.", operate.StatusWords(h.Status), c.plain(h.Marked.By),
		c.plain(h.Marked.Reason))
}

// happenedUnless is happened, unless a reason is known already.
func (c *console) happenedUnless(r *request, s operate.Selection, known bool) string {
	if known {
		return ""
	}
	return c.happened(r, s)
}

// plain is a value of a message, or of a person, within a text.
func (c *console) plain(s string) string {
	line, _ := c.shown(s, maxShown)
	return line
}
