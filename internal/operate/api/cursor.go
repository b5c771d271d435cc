package api

import (
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/internal/operate"
)

const (
	usualLimit = 100
	mostLimit  = 1000
)

// limit is how many rows a request asks for.
func limit(q url.Values, most int) (int, error) {
	typed := q.Get("limit")
	if typed == "" {
		return min(usualLimit, most), nil
	}
	n, err := strconv.Atoi(typed)
	if err != nil || n < 1 || n > most {
		return 0, operate.WrongValue("limit", typed, "use a number from 1 to "+strconv.Itoa(most))
	}
	return n, nil
}

// A cursor is the place behind the last row of a page. Programs send it back as it is: what it says may change.
func cursor(list string, place ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(list + " " + strings.Join(place, " ")))
}

// place reads a cursor of a list. Without a cursor there is none.
func place(q url.Values, list string, parts int) ([]string, error) {
	typed := q.Get("cursor")
	if typed == "" {
		return nil, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(typed)
	fields := strings.Split(string(text), " ")
	if err != nil || len(fields) != parts+1 || fields[0] != list {
		return nil, badCursor(typed)
	}
	return fields[1:], nil
}

// seqPlace reads a cursor that is a number, or the number that a person saw.
func seqPlace(q url.Values, list string) (int64, error) {
	if typed := q.Get("after"); typed != "" {
		n, err := strconv.ParseInt(typed, 10, 64)
		if err != nil || n < 1 || q.Get("cursor") != "" {
			return 0, operate.WrongValue("after", typed, "use a number from 1 on, without a cursor")
		}
		return n, nil
	}
	parts, err := place(q, list, 1)
	if err != nil || parts == nil {
		return 0, err
	}
	n, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || n < 1 {
		return 0, badCursor(q.Get("cursor"))
	}
	return n, nil
}

func seqCursor(list string, n int64) string { return cursor(list, strconv.FormatInt(n, 10)) }

func badCursor(typed string) error {
	return operate.WrongValue("cursor", typed, "use next of the page before, with the same list, or begin without a cursor")
}

// order reports whether a list is turned around.
func order(q url.Values, usual string) (newest bool, err error) {
	switch typed := q.Get("order"); typed {
	case "":
		return usual == "newest", nil
	case "newest", "oldest":
		return typed == "newest", nil
	default:
		return false, operate.WrongValue("order", typed, "use oldest or newest")
	}
}
