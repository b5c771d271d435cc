package conformance

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/matrix"
)

// The process runs the test that started it and no other, whatever its name.
func TestOnlyThis(t *testing.T) {
	for _, name := range []string{"TestKafka", "TestAll/kafka", "TestAll/a+b (c)|d/[e]#01"} {
		t.Run(name, func(t *testing.T) { // as -run does, level by level; its own splitting knows escapes
			patterns := strings.Split(onlyThis(t.Name()), "/")
			levels := strings.Split(t.Name(), "/")
			if len(patterns) != len(levels) {
				t.Fatalf("%q for %q", patterns, levels)
			}
			for i, level := range levels {
				if re := regexp.MustCompile(patterns[i]); !re.MatchString(level) || re.MatchString(level+"2") || re.MatchString("x"+level) {
					t.Errorf("%q for %q", patterns[i], level)
				}
			}
		})
	}
}

// Events are read line by line, however they come, and nothing else is taken for one.
func TestEvents(t *testing.T) {
	e := &events{seen: map[string]int{}}
	for _, part := range []string{"event: at writ", "ten good\nPASS\nevent: placed a\nevent: pla", "ced b\nno event: placed c\nevent: placed"} {
		if n, err := e.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if e.count("at", "written", "good") != 1 || e.all("placed") != 2 || e.count("placed", "c") != 0 {
		t.Errorf("%v", e.seen)
	}
}

// inFirst are rows whose reason both columns of a broker have in common: the chain of the handler, or the publisher. K
// and F rows show what differs, which is the subscriber or the kind of queue.
var inFirst = []string{"R1", "R3", "R4", "R11", "R12d", "R12e", "R12f", "R12g", "D2", "D10", "D11", "D13", "D15", "V2", "V8",
	"H2", "F3", "F4", "F5"}

// SecondColumn returns Target.Only of a broker's second column: in make conformance all rows, and in make test those
// that the first one does not answer for.
func SecondColumn() (ids []string) {
	if os.Getenv(matrix.Variable) != "" {
		return nil
	}
	for _, f := range features() {
		if !slices.Contains(inFirst, f.id) {
			ids = append(ids, f.id)
		}
	}
	return ids
}
