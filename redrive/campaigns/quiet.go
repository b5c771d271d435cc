package campaigns

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// quietHours are hours of each day in which nothing is to begin, by the clock on a wall. The zero value is no hour.
type quietHours struct {
	from, to time.Duration // since midnight
	zone     *time.Location
}

// parseQuiet reads hours such as 22:00-06:00. Nothing is no hour.
func parseQuiet(text string, zone *time.Location) (quietHours, error) {
	if text == "" {
		return quietHours{}, nil
	}
	from, to, is := strings.Cut(text, "-")
	h := quietHours{zone: zone}
	var wrong error
	read := func(part string) time.Duration {
		at, err := time.Parse("15:04", part)
		if wrong = cmp.Or(wrong, err); len(part) != len("15:04") {
			is = false
		}
		return time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute
	}
	if h.from, h.to = read(from), read(to); wrong != nil || !is {
		return quietHours{}, fmt.Errorf("is %q: write it as 22:00-06:00", text)
	}
	if h.from == h.to {
		return quietHours{}, fmt.Errorf("is %q, which is all day: leave the policy out, or freeze it", text)
	}
	return h, nil
}

// until returns when the hours end that t is in. It is zero if t is in none. On a day on which the clock is changed the
// hours last from the earliest time that they could begin at to the latest that they could end at.
func (h quietHours) until(t time.Time) time.Time {
	if h.zone == nil {
		return time.Time{}
	}
	y, m, d := t.In(h.zone).Date()
	for back := 1; back >= -1; back-- { // hours of yesterday may last until today, and a gap can be at midnight
		day := time.Date(y, m, d-back, 0, 0, 0, 0, time.UTC)
		begin, _ := h.at(day.Add(h.from))
		if h.to <= h.from {
			day = day.AddDate(0, 0, 1)
		}
		if _, end := h.at(day.Add(h.to)); !t.Before(begin) && t.Before(end) {
			return end
		}
	}
	return time.Time{}
}

// at returns when the clock on the wall shows a time, which is given as if it were UTC: the first and the last time. If
// the clock skips the time, it is what the clock would show before and after that.
func (h quietHours) at(wall time.Time) (first, last time.Time) {
	var shown, any []time.Time
	for _, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		_, offset := wall.Add(near).In(h.zone).Zone()
		t := wall.Add(-time.Duration(offset) * time.Second)
		any = append(any, t)
		if _, is := t.In(h.zone).Zone(); is == offset {
			shown = append(shown, t)
		}
	}
	if len(shown) == 0 {
		shown = any
	}
	first, last = shown[0], shown[len(shown)-1]
	if last.Before(first) {
		first, last = last, first
	}
	return first, last
}
