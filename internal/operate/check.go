package operate

import (
	"math"
	"strconv"
	"time"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// What package campaigns accepts, for errors that name the field.
const (
	MinRate        = 0.001
	MaxConcurrency = 256
)

// CheckRate returns an error for a rate that no campaign can have.
func CheckRate(field string, rate float64) error {
	if rate == 0 || rate >= MinRate && rate <= campaigns.MaxRate {
		return nil
	}
	return wrong(field, "is %v letters per second: it must be %v to %.0f; 0 is no limit", rate, MinRate,
		float64(campaigns.MaxRate))
}

// CheckSettings returns what is wrong with the settings of a campaign, each with the field that it is about. Package
// campaigns refuses more, in its own words.
func CheckSettings(r *campaigns.Request) (all []*Wrong) {
	add := func(is bool, field, format string, args ...any) {
		if is {
			all = append(all, wrong(field, format, args...))
		}
	}
	number := func(field string, n, least, most int) {
		add(n < least, field, "is %d: it must be at least %d", n, least)
		add(n > most, field, "is %d: it must be at most %d", n, most)
	}
	wait := func(field string, d time.Duration) { add(d < 0, field, "is %v: it must not be negative", d) }
	add(r.To != "" && r.FirstStage, "to", "and first-stage are both given: choose one")
	if w, is := CheckRate("rate", r.Rate).(*Wrong); is {
		all = append(all, w)
	}
	number("max", r.Max, 0, math.MaxInt32)
	number("canary", r.Canary, 0, math.MaxInt32)
	add(!(r.StopAt >= 0 && r.StopAt <= 1), "stop-at", "is %v: it is a share, of more than 0 and at most 1; 1 is never",
		strconv.FormatFloat(r.StopAt, 'g', -1, 64))
	number("stop-after", r.StopAfter, 0, math.MaxInt32)
	number("concurrency", r.Concurrency, 0, MaxConcurrency)
	wait("canary-wait", r.CanaryWait)
	wait("resume-after", r.ResumeAfter)
	return all
}
