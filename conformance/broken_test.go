package conformance

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/results"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// broken are pub/subs that break one sentence each.
var broken = map[string]string{
	"confirms what is not sent":       "K1",
	"acks on nack":                    "K2",
	"acks what is left at Close":      "K4",
	"redelivers what is held":         "K3",
	"every instance is a group":       "K5",
	"reorders":                        "K6",
	"deduplicates":                    "K7",
	"refuses in words of its own":     "K8",
	"renames keys":                    "K9",
	"names in lower case":             "K10",
	"contexts live on":                "K11",
	"trims":                           "K12",
	"forgets at Close":                "K13",
	"passes over what it cannot read": "K14",
	"new ids":                         "K15",
	"makes no topics":                 "K16",
	"one at a time":                   "K17",
	"counts all":                      "K20",
}

// brokenVariable is set in the process in which rows fail on purpose.
const brokenVariable = "SPILLWAY_CONFORMANCE_BROKEN"

// A pub/sub that keeps the contract passes its rows, and one that breaks a sentence fails the row that says so.
func TestBrokenPubSubs(t *testing.T) {
	if os.Getenv(brokenVariable) != "" {
		breakAll(t)
		return
	}
	t.Parallel()
	self := testkit.Must(os.Executable())
	cmd := exec.Command(self, "-test.run=^TestBrokenPubSubs$", "-test.v", "-test.parallel=30", "-test.timeout=3m")
	cmd.Env = append(os.Environ(), brokenVariable+"=1", results.Variable+"=")
	printed, err := cmd.CombinedOutput()
	testkit.Check(t, err != nil, "nothing failed")
	out := string(printed)
	testkit.Check(t, strings.Contains(out,
		"--- PASS: TestBrokenPubSubs/none "), "a pub/sub that keeps the contract does not pass:\n%s", out)
	for breaks, id := range broken {
		s, _ := said(id)
		name := "TestBrokenPubSubs/" + strings.ReplaceAll(breaks, " ", "_")
		if !strings.Contains(out, "--- FAIL: "+name+"/"+id+" ") || !strings.Contains(out, "The pub/sub breaks "+s.String()) {
			t.Errorf("a pub/sub that %s passes %s:\n%s", breaks, s, of(out, name))
		}
	}
}

// of are the lines of one subtest.
func of(out, name string) string {
	return strings.Join(regexp.MustCompile(`(?m)^.*`+regexp.QuoteMeta(name)+`.*$`).FindAllString(out, -1), "\n")
}

func breakAll(t *testing.T) {
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		target := newMemory("").target(t)
		for _, f := range features() {
			if strings.HasPrefix(f.id, "K") {
				target.Only = append(target.Only, f.id)
			}
		}
		Run(t, target)
	})
	for breaks, id := range broken {
		t.Run(breaks, func(t *testing.T) {
			t.Parallel()
			target := newMemory(breaks).target(t)
			target.Only, target.wait = []string{id}, time.Second
			Run(t, target)
		})
	}
}

// inFirst are rows whose reason both columns of a broker have in common: the chain of the handler, or the publisher. K
// and F rows show what differs, which is the subscriber or the kind of queue.
var inFirst = []string{"R1", "R3", "R4", "R11", "R12d", "R12e", "R12f", "R12g", "D2", "D10", "D11", "D13", "D15", "V2",
	"V8", "H2", "F3", "F4", "F5"}

// SecondColumn returns Target.Only of a broker's second column: in make conformance all rows, and in make test those
// that the first one does not answer for.
func SecondColumn() (ids []string) {
	if os.Getenv(results.Variable) != "" {
		return nil
	}
	for _, f := range features() {
		if !slices.Contains(inFirst, f.id) {
			ids = append(ids, f.id)
		}
	}
	return ids
}
