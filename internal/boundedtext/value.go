package boundedtext

import (
	"strconv"
	"time"
)

// maxCount bounds every count that is read from metadata. A larger one was not written by us.
const maxCount = 1_000_000

// Count reads a count from metadata. What cannot be one reads as 0.
func Count(s string) int {
	if s == "" { // the usual case: an error would be allocated
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > maxCount {
		return 0
	}
	return n
}

// Time reads a time in RFC 3339 from metadata. What cannot be one, or lies before 1970 or after 9999, where it could
// not be written again, reads as the zero time.
func Time(s string) time.Time {
	if s == "" || len(s) > len(time.RFC3339Nano) {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	t = t.UTC() // first: an offset may carry it over either end
	if err != nil || t.Year() < 1970 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}
