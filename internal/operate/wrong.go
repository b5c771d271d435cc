package operate

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// Wrong is an error of what a person asked for. The person can correct it.
type Wrong struct {
	Field string // of the request, if it is one
	Why   string // with the value and the remedy
	// Value and Remedy are those of Why, if they can be told apart.
	Value, Remedy string
}

func (w *Wrong) Error() string {
	if w.Field == "" {
		return w.Why
	}
	return w.Field + " " + w.Why
}

// wrong is the error of a field.
func wrong(field, format string, args ...any) *Wrong {
	return &Wrong{Field: field, Why: fmt.Sprintf(format, args...)}
}

// wrongValue is the error of a field that has a value which it cannot have.
func wrongValue(field, value, remedy string) *Wrong { return WrongValue(field, value, remedy) }

// WrongValue is the error of a field that has a value which it cannot have.
func WrongValue(field, value, remedy string) *Wrong {
	value = boundedtext.Text(value, 100)
	return &Wrong{Field: field, Why: fmt.Sprintf("is %q: %s", value, remedy), Value: value, Remedy: remedy}
}

// told is the error of a request whose sender is in the same process.
type notified struct{ err error }

type notifiedKey struct{}

// Telling lets Told return what Tell was called with.
func Telling(ctx context.Context) context.Context {
	return context.WithValue(ctx, notifiedKey{}, &notified{})
}

// Tell tells the sender of a request, if it is in the same process, why it is not answered. The first to tell counts.
func Tell(ctx context.Context, err error) {
	if t, is := ctx.Value(notifiedKey{}).(*notified); is && t.err == nil {
		t.err = err
	}
}

// Told returns why a request was not answered.
func Notified(ctx context.Context) error {
	if t, is := ctx.Value(notifiedKey{}).(*notified); is {
		return t.err
	}
	return nil
}

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

// Moment reads a time, or a time ago: 90m, 2h, 3d, 2026-03-01T12:00. Without a zone it is UTC. Empty text is the zero
// time.
func Moment(field, text string, now time.Time) (time.Time, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return time.Time{}, nil
	}
	if ago, ok := Age(text); ok {
		return now.Add(-ago).UTC(), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05",
		"2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, wrongValue(field, text, "use a time ago such as 90m, 2h or 3d, or a time such as "+
		"2026-03-01T12:00; without a zone it is UTC")
}

// Age reads how long ago something is: 12h, 30d.
func Age(text string) (ago time.Duration, ok bool) {
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		n, err := strconv.ParseFloat(days, 64)
		return time.Duration(n * float64(24*time.Hour)), err == nil && n >= 0 && n < 100_000
	}
	ago, err := time.ParseDuration(text)
	return ago, err == nil && ago >= 0
}

// Begin reads when a campaign begins: in 2h, or at a time to come.
func Begin(field, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if in, ok := Age(text); ok && in > 0 {
		return now.Add(in), nil
	}
	if at, err := Moment(field, text, now); err == nil && at.After(now) {
		return at, nil
	}
	return time.Time{}, wrongValue(field, text, "use a time to come, such as 2h, or 2026-03-01T22:00; without a zone it "+
		"is UTC")
}
