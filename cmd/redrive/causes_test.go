package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
)

// Feature V10: with very many causes each can be named, an ambiguity is one of all causes, and lists go to the end.
func TestManyCauses(t *testing.T) {
	const large, all = 1000, 1100 // what one page of a Store has, and more
	var messages []*message.Message
	for i := range all + large {
		reason := fmt.Sprintf("reason_%c%c%c", 'a'+i%all/100, 'a'+i%all/10%10, 'a'+i%10)
		messages = append(messages, letter(fmt.Sprintf("id-%d", i), "{}", func(l *poison.Letter) {
			l.Failure.Reason = reason
		}))
	}
	// the last 100 of the causes have one letter, and the others two
	bothWays(t, messages, testManyCauses)
}

func testManyCauses(t *testing.T, s *shop) {
	byLetters := map[int][]string{}
	rows := testkit.Must(s.db.Query(`SELECT cause, COUNT(*) FROM spillway_dead_letters GROUP BY cause ORDER BY cause`))
	defer rows.Close()
	for rows.Next() {
		var cause string
		var n int
		testkit.NoError(t, rows.Scan(&cause, &n))
		byLetters[n] = append(byLetters[n], cause)
	}
	testkit.NoError(t, rows.Err())
	shown, hidden := byLetters[2], byLetters[1]
	testkit.Require(t, len(shown) == 1000 && len(hidden) == 100, "%d causes of 2 letters, %d of 1", len(shown), len(hidden))
	s.pipe("list", "--cause", hidden[0]).wants(t, 0, "\twaiting\t")
	s.pipe("list", "--cause", hidden[0][:12]).wants(t, 0, "\twaiting\t")
	s.pipe("list", "--cause", "0123456789abcdefg").wants(t, 3, "no cause begins so")
	s.pipe("list", "--cause", "%").wants(t, 3, "no cause begins so")
	beginning := func(causes []string, begin string) (n int) {
		for _, cause := range causes {
			if strings.HasPrefix(cause, begin) {
				n++
			}
		}
		return n
	}
	for _, cause := range hidden {
		for n := 1; n < len(cause); n++ {
			if beginning(shown, cause[:n]) == 1 { // it only looks unique
				got := s.pipe("discard", "--cause", cause[:n], "--reason", "the shown one?", "--yes")
				got.wants(t, 2, fmt.Sprintf("and %d causes begin so", 1+beginning(hidden, cause[:n])))
				goto found
			}
		}
	}
	t.Error("no hidden cause begins as a single one that is shown")
found:
	s.pipe("causes", "--limit", "1000").wants(t, 0, "--limit 10000 shows more")
	got := s.pipe("causes", "--limit", "10000")
	lines := slices.Sorted(strings.Lines(got.out))
	testkit.Check(t, len(slices.Compact(lines)) == 1100 && !strings.Contains(got.err, "more causes"),
		"%d causes are listed, and it says %q", len(lines), got.err)
}
