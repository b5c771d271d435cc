package operate

import (
	"strconv"
	"strings"
	"time"
)

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
