package console

import (
	"strconv"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/operate"
)

// The settings that a form begins with. A person sees them, with the reason, and may take them away: a campaign that is
// started in a hurry goes at a rate, and tries some letters first if there are many.
const (
	usualRate   = 20
	fastRate    = 100 // for so many letters that the usual rate would take hours
	usualCanary = 10
	largeCanary = 100 // tells more of a million letters, and is as quickly over
	fewLetters  = 20
)

// carefully is the rate and the canary for n letters.
func carefully(n operate.Number) (rate, canary string) {
	switch {
	case !n.Known(): // counting takes long, so there are many
		return strconv.Itoa(usualRate), strconv.Itoa(largeCanary)
	case n.N() <= fewLetters:
		return strconv.Itoa(usualRate), ""
	}
	return strconv.Itoa(min(max(usualRate, n.N()/3600), fastRate)), strconv.Itoa(min(max(usualCanary, n.N()/100), largeCanary))
}

func newSettings(n operate.Number) campaignForm {
	s := campaignForm{Key: watermill.NewUUID()}
	s.Rate, s.Canary = carefully(n)
	return s
}

// care says what the rate and the canary do for n letters, and what it means to be without them.
func (s *campaignForm) care(n operate.Number) string {
	few := n.Known() && n.N() <= fewLetters
	first := "Without a canary all go, until too many have failed again."
	switch {
	case s.Canary != "":
		first = say("%s go first. If too many of these fail again, the campaign pauses, and the others stay as they are.",
			s.Canary)
	case few:
		first = "So few letters need no canary."
	}
	if s.Rate == "" {
		return first + " Without a rate they go as fast as the workers can."
	}
	return first + " The rate spares what their handlers call."
}

// changed takes the rate and the canary away, or brings the careful ones back, as a button asks.
func (s *campaignForm) changed(button string, n operate.Number) {
	switch button {
	case "free":
		s.Rate, s.Canary = "", ""
	case "careful":
		s.Rate, s.Canary = carefully(n)
	}
}
