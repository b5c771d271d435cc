package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V10: what people and programs see, in a pipe, on terminals of 80 and 200 columns, with and without colour.
func TestLook(t *testing.T) {
	s := newShop(t, incident()...)
	for name, args := range map[string][]string{
		"causes": {"causes"}, "list": {"list"}, "show": {"show", "4"}, "hostile": {"show", "5"}, "doctor": {"doctor"},
	} {
		t.Run(name, func(t *testing.T) {
			piped := s.pipe(args...)
			if piped.code != 0 {
				t.Fatalf("exit %d: %s", piped.code, piped.err)
			}
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
func TestHostileValues(t *testing.T) {
	s := newShop(t, incident()...)
	for _, args := range [][]string{
		{"causes"}, {"list"}, {"show", "5"}, {"show", "5", "--format", "text"}, {"show", "5", "--format", "hex"}, {"show", "\x1b[2J\x1b]0;owned\x07"},
		{"export"}, {"export", "--format", "csv"}, {"list", "--topic", "\x1b[31m"}, {"show", "\x1b[31m"}, {"\x1b[31m"}, {"list", "--\x1b[31m"},
		{"list", "--since", "\x1b[31m"}, {"drain", "\x1b[31m", "--broker", "\x1b[31m", "--allow", "x", "--yes"}, {"list", "--db", "\x1b[31m:x"},
		{"list", "--service", "\x1b[31m"}, {"list", "--color", "\x1b[31m"}, {"list", "--config", "\x1b[31m"},
	} {
		for _, more := range [][]string{nil, {"--json"}} {
			args := append(args[:len(args):len(args)], more...)
			piped := s.pipe(args...)
			obeyed(t, fmt.Sprint(args), piped.out)
			obeyed(t, fmt.Sprint(args), piped.err)
			obeyed(t, fmt.Sprint(args, " on a terminal"), s.terminal(100, "", append(args, "--color", "never")...).out)
		}
	}
}

func obeyed(t *testing.T, where, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			t.Errorf("%s prints %q in %q", where, r, text)
			return
		}
	}
}

// No cell of the CSV begins as a formula does.
func TestFormulas(t *testing.T) {
	s := newShop(t, incident()...)
	out := s.pipe("export", "--format", "csv").out
	if !strings.Contains(out, "'=cmd|") || !strings.Contains(out, "'=HYPERLINK") {
		t.Errorf("the formulas are not there, or raw: %s", out)
	}
	for line := range strings.Lines(out) {
		for cell := range strings.SplitSeq(line, ",") {
			if strings.HasPrefix(strings.TrimLeft(cell, `"`), "=") {
				t.Errorf("a formula: %s", cell)
			}
		}
	}
}

// Colour is for terminals, and NO_COLOR and TERM=dumb turn it off.
func TestColour(t *testing.T) {
	s := newShop(t, incident()...)
	painted := func(out string) bool { return strings.Contains(out, "\x1b[") }
	if !painted(s.terminal(80, "", "causes").out) || painted(s.pipe("causes").out) || !painted(s.pipe("causes", "--color", "always").out) {
		t.Error("colour is not for terminals, or --color always has none")
	}
	s.env = append(s.env, "NO_COLOR=1")
	if painted(s.terminal(80, "", "causes").out) || !painted(s.terminal(80, "", "causes", "--color", "always").out) {
		t.Error("NO_COLOR is not heard, or stronger than --color")
	}
	s.env = append(s.env, "NO_COLOR=", "TERM=dumb")
	if painted(s.terminal(80, "", "causes").out) {
		t.Error("a dumb terminal gets colour")
	}
}

// No line of a table is wider than the terminal.
func TestWidths(t *testing.T) {
	s := newShop(t, incident()...)
	for _, columns := range []int{80, 100, 132, 200} {
		for _, command := range []string{"causes", "list"} {
			for line := range strings.Lines(s.terminal(columns, "", command, "--color", "never").out) {
				if n := len([]rune(strings.TrimRight(line, "\n"))); n > columns {
					t.Errorf("%s has %d columns on a terminal of %d: %s", command, n, columns, line)
				}
			}
		}
	}
}

// Feature V10: on a terminal of 80 columns the ids of letters are whole, causes say when and where, and help names no
// default twice.
func TestNarrow(t *testing.T) {
	ids := []string{"0195f6f2-0000-7000-8000-000000000001", "0195f6f2-0000-7000-8000-000000000002"}
	s := newShop(t, letter(ids[0], "{}"), letter(ids[1], "{}"))
	list := s.terminal(80, "", "list", "--color", "never").out
	for _, id := range ids {
		if !strings.Contains(list, id) {
			t.Errorf("the id %s is cut:\n%s", id, list)
		}
	}
	causes := s.terminal(80, "", "causes", "--color", "never").out
	for _, want := range []string{" LAST ", "02-29 12:00:01", "HANDLER", "billing"} {
		if !strings.Contains(causes, want) {
			t.Errorf("causes does not show %q:\n%s", want, causes)
		}
	}
	for _, out := range []string{list, causes} {
		for line := range strings.Lines(out) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
	if help := s.terminal(80, "", "list", "--help").out; strings.Contains(help, "[]") || strings.Count(help, "(default waiting)") != 1 {
		t.Error(help)
	}
}

// Feature V10: the exit codes that redrive help exit-codes promises.
func TestExitCodes(t *testing.T) {
	s := newShop(t, incident()...)
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{0, "", []string{"causes"}},
		{0, "", []string{"help", "exit-codes"}},
		{0, "no letter is", []string{"causes", "--topic", "other"}},
		{2, "unknown command", []string{"cause"}},
		{2, "unknown flag", []string{"list", "--topics", "x"}},
		{2, "--class", []string{"list", "--class", "bad"}},
		{2, "--since", []string{"list", "--since", "yesterday"}},
		{2, "takes", []string{"show"}},
		{2, "--db", []string{"list", "--db", "nothing"}},
		{2, "cannot be opened", []string{"list", "--db", "sqlite:///nowhere/at.all"}},
		{3, "no letter has", []string{"show", "999"}},
		{3, "no cause begins", []string{"list", "--cause", "zz"}},
		{3, "these services have: shop", []string{"list", "--service", "shpo"}},
		{2, "here are shop", []string{"list", "--service", ""}},
		{2, "--reason is empty", []string{"discard", "--cause", "a"}},
		{2, "nothing chooses", []string{"discard", "--reason", "why"}},
		{4, "add --yes", []string{"discard", "--all", "--reason", "why"}},
		{3, "no letter is chosen", []string{"discard", "--topic", "other", "--reason", "why", "--yes"}},
		{2, "--allow is empty", []string{"drain", "x"}},
		{2, "--naming", []string{"drain", "x", "--allow", "y", "--naming", "camels"}},
		{0, "", []string{"discard", "--id", "id-0", "--reason", "why", "--yes"}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			if got := s.pipe(c.args...); got.code != c.code || !strings.Contains(got.err, c.says) {
				t.Errorf("exit %d, want %d; it says %q, want %q", got.code, c.code, got.err, c.says)
			}
		})
	}
}

// A question is answered at the terminal, and names the number.
func TestConfirm(t *testing.T) {
	s := newShop(t, incident()...)
	asked := s.terminal(100, "n\n", "discard", "--handler", "billing", "--reason", "test tenant")
	if asked.code != 4 || !strings.Contains(asked.out, "discard 3 letters of shop? [y/N]") {
		t.Errorf("exit %d: %s", asked.code, asked.out)
	}
	if n, err := s.store.Count(t.Context(), letters.Filter{}); err != nil || n != 5 {
		t.Fatalf("%d wait after a no, %v", n, err)
	}
	if asked = s.terminal(100, "y\n", "discard", "--handler", "billing", "--reason", "test tenant"); asked.code != 0 {
		t.Errorf("exit %d: %s", asked.code, asked.out)
	}
	given, err := s.store.List(t.Context(), letters.Filter{Statuses: []letters.Status{letters.StatusDiscarded}})
	if err != nil || len(given) != 3 || given[0].Marked.By != "ann" || given[0].Marked.Reason != "test tenant" {
		t.Errorf("%+v, %v", given, err)
	}
}
