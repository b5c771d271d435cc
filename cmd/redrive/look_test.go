package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature V10: what people and programs see, in a pipe, on terminals of 80 and 200 columns, with and without colour.
func TestLook(t *testing.T) { bothWays(t, incident(), testLook) }

func testLook(t *testing.T, s *shop) {
	for name, args := range map[string][]string{
		"causes": {"causes"}, "list": {"list"}, "show": {"show", "4"}, "hostile": {"show", "5"}, "doctor": {"doctor"},
	} {
		t.Run(name, func(t *testing.T) {
			piped := s.pipe(args...)
			testkit.Require(t, piped.code == 0, "exit %d: %s", piped.code, piped.err)
			if name != "doctor" { // it says how long the database took
				golden(t, name+".pipe", piped.out)
				golden(t, name+".80", s.terminal(80, "", args...).out)
				golden(t, name+".200", s.terminal(200, "", append(args, "--color", "never")...).out)
			}
			objects := s.pipe(append(args, "--json")...)
			for line := range strings.Lines(objects.out) {
				var object map[string]any
				if err := json.Unmarshal([]byte(line), &object); err != nil {
					t.Errorf("%q is no JSON object: %v", line, err)
				}
			}
			if name != "doctor" {
				golden(t, name+".json", objects.out)
			}
		})
	}
}

// Feature V10: no character that a terminal obeys reaches it from a letter, whatever the command and the output.
func TestHostileValues(t *testing.T) { bothWays(t, incident(), testHostileValues) }

func testHostileValues(t *testing.T, s *shop) {
	for _, args := range [][]string{
		{"causes"}, {"list"}, {"show", "5"}, {"show", "5", "--format", "text"}, {"show", "5", "--format", "hex"}, {"show", "\x1b[2J\x1b]0;owned\x07"},
		{"export"}, {"export", "--format", "csv"}, {"list", "--topic", "\x1b[31m"}, {"show", "\x1b[31m"}, {"\x1b[31m"}, {"list", "--\x1b[31m"},
		{"list", "--since", "\x1b[31m"}, {"drain", "\x1b[31m", "--broker", "\x1b[31m", "--allow", "x", "--yes"}, {"list", "--db", "\x1b[31m:x"},
		{"list", "--service", "\x1b[31m"}, {"list", "--color", "\x1b[31m"}, {"list", "--config", "\x1b[31m"},
	} {
		piped, where := s.pipe(args...), fmt.Sprint(args)
		obeyed(t, where, piped.out+piped.err)
		obeyed(t, where+" on a terminal", s.terminal(100, "", append(args, "--color", "never")...).out)
		if piped.code == 0 {
			piped = s.pipe(append(args, "--json")...)
			obeyed(t, where+" as JSON", piped.out+piped.err)
		}
	}
	s.pipe("export", "--format", "csv").wants(t, 0, "'=cmd|", "'=HYPERLINK")
}

func obeyed(t *testing.T, where, text string) {
	t.Helper()
	raw := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
	testkit.Check(t, raw < 0, "%s prints at %d %q", where, raw, text)
}

// Colour is for terminals, and NO_COLOR and TERM=dumb turn it off.
func TestColour(t *testing.T) {
	s := newShop(t, incident()...)
	painted := func(out string) bool { return strings.Contains(out, "\x1b[") }
	testkit.Check(t, painted(s.terminal(80, "", "causes").out) && !painted(s.pipe("causes").out) &&
		painted(s.pipe("causes", "--color", "always").out), "colour is not for terminals, or --color always has none")
	s.env = append(s.env, "NO_COLOR=1")
	if painted(s.terminal(80, "", "causes").out) || !painted(s.terminal(80, "", "causes", "--color", "always").out) {
		t.Error("NO_COLOR is not heard, or stronger than --color")
	}
	s.env = append(s.env, "NO_COLOR=", "TERM=dumb")
	testkit.Check(t, !painted(s.terminal(80, "", "causes").out), "a dumb terminal gets colour")
}

// Feature V10: on a terminal of 80 columns the ids of letters are whole, causes say when and where, and help names no
// default twice.
func TestNarrow(t *testing.T) {
	ids := []string{"0195f6f2-0000-7000-8000-000000000001", "0195f6f2-0000-7000-8000-000000000002"}
	s := newShop(t, letter(ids[0], "{}"), letter(ids[1], "{}"))
	list := s.terminal(80, "", "list", "--color", "never").out
	for _, id := range ids {
		testkit.Check(t, strings.Contains(list, id), "the id %s is cut:\n%s", id, list)
	}
	causes := s.terminal(80, "", "causes", "--color", "never").out
	for _, want := range []string{" LAST ", "02-29 12:00:01", "HANDLER", "billing"} {
		testkit.Check(t, strings.Contains(causes, want), "causes does not show %q:\n%s", want, causes)
	}
	help := s.terminal(80, "", "list", "--help").out
	testkit.Check(t, !strings.Contains(help, "[]") && strings.Count(help, "(default waiting)") == 1, "%v", help)
}
