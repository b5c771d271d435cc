package campaigns

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature V14: quiet hours go by the clock on the wall. On days of its change they are longer rather than shorter.
func TestUntil(t *testing.T) {
	for _, row := range []struct{ hours, zone, at, until string }{
		{"09:00-17:30", "UTC", "2026-06-01T08:59:59Z", ""},
		{"09:00-17:30", "UTC", "2026-06-01T09:00:00Z", "2026-06-01T17:30:00Z"},
		{"09:00-17:30", "UTC", "2026-06-01T17:30:00Z", ""},
		{"22:00-06:00", "Europe/Berlin", "2026-06-01T19:59:59Z", ""},
		{"22:00-06:00", "Europe/Berlin", "2026-06-01T20:00:00Z", "2026-06-02T04:00:00Z"},
		{"22:00-06:00", "Europe/Berlin", "2026-06-02T03:59:59Z", "2026-06-02T04:00:00Z"},
		{"22:00-00:00", "Europe/Berlin", "2026-06-01T21:59:59Z", "2026-06-01T22:00:00Z"},
		// the clock goes from 2:00 to 3:00 on 29 March
		{"22:00-06:00", "Europe/Berlin", "2026-03-28T21:00:00Z", "2026-03-29T04:00:00Z"},
		{"22:00-02:30", "Europe/Berlin", "2026-03-29T01:20:00Z", "2026-03-29T01:30:00Z"},
		{"02:30-05:00", "Europe/Berlin", "2026-03-29T00:40:00Z", "2026-03-29T03:00:00Z"},
		{"02:30-05:00", "Europe/Berlin", "2026-03-29T00:29:00Z", ""},
		// and from 3:00 to 2:00 on 25 October
		{"22:00-02:30", "Europe/Berlin", "2026-10-25T00:45:00Z", "2026-10-25T01:30:00Z"},
		{"22:00-06:00", "Europe/Berlin", "2026-10-24T20:00:00Z", "2026-10-25T05:00:00Z"},
		{"02:30-05:00", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T04:00:00Z"},
		{"22:00-06:00", "Europe/Berlin", "2026-10-25T20:59:59Z", ""},
		// at midnight there, and by half an hour elsewhere
		{"23:30-00:30", "Africa/Cairo", "2026-04-23T21:45:00Z", "2026-04-23T22:30:00Z"},
		{"01:00-03:00", "Australia/Lord_Howe", "2026-04-04T14:00:00Z", "2026-04-04T16:30:00Z"},
	} {
		zone := testkit.Must(time.LoadLocation(row.zone))
		h := testkit.Must(parseQuiet(row.hours, zone))
		got := ""
		if end := h.until(testkit.Must(time.Parse(time.RFC3339, row.at))); !end.IsZero() {
			got = end.UTC().Format(time.RFC3339)
		}
		testkit.Check(t, got == row.until, "%s in %s at %s: until %q, want %q", row.hours, row.zone, row.at, got, row.until)
	}
	testkit.Check(t, quietHours{}.until(time.Now()).IsZero(), "no hours are quiet")
}

// Feature V14: what is no time of a day, or all of it, is refused.
func TestParse(t *testing.T) {
	for _, text := range []string{"22:00", "22-6", "24:00-06:00", "22:00-06:60", "06:00-06:00", " 22:00-06:00", "a-b", "-"} {
		_, err := parseQuiet(text, time.UTC)
		testkit.Check(t, err != nil, "%q is taken", text)
	}
}
