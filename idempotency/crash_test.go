package idempotency_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// killsVariable says how often a process is killed at each step. Default: 1.
const killsVariable = "SPILLWAY_IDEMPOTENCY_KILLS"

// crashVariable holds the setting of a process that is to be killed.
const crashVariable = "SPILLWAY_IDEMPOTENCY_CRASH"

// steps are where a process is killed, in their order: after the claim and the handler, before and after the commit,
// before and after the publish, and after the mark of what was published.
var steps = []string{"claimed", "handled", "committing", "committed", "publishing", "published", "acking"}

// Features I2, I3, I4, promises P1, P7: a real process is killed with SIGKILL at each step of a message, and the next
// one goes on with what was not acked. Transaction mode: one effect. Lease mode: the effect is outside of SQL, and
// happens again where the process died between it and its record. Either way outputs are published under one id and
// nothing is lost.
func TestCrash(t *testing.T) {
	if text := os.Getenv(crashVariable); text != "" {
		live(t, text)
		return
	}
	program := unraced(t)
	for _, mode := range []struct{ id, title string }{{"I2", "one effect"}, {"I3", "recorded once, fences rise"}} {
		title := "killed at each step of a message: " + mode.title + ", outputs under one id, nothing lost"
		row{mode.id + "-kill", title, nil}.on(t, func(t *testing.T, d database) {
			crash(newCell(t, d), program, mode.id == "I3")
		})
	}
}

// crash has processes killed at every step, and says what is wrong afterwards.
func crash(c *cell, program string, leases bool) {
	c.store(c.db)
	kills, random := number(c, killsVariable, 1), testkit.Random(c)
	at := slices.Repeat(steps, kills)
	random.Shuffle(len(at), func(i, j int) { at[i], at[j] = at[j], at[i] })
	var all sync.WaitGroup
	// Sources that are worked off at once. Leases of the dead make theirs wait.
	lineages := make([]*lineage, map[bool]int{false: 2, true: 8}[leases])
	for i := range lineages {
		part := at[i*len(at)/len(lineages) : (i+1)*len(at)/len(lineages)]
		s := setting{Database: c.name, Address: c.address, Dir: c.TempDir(), Leases: leases}
		lineages[i] = newLineage(c, s, i, part, random)
		all.Go(func() { lineages[i].run(program) })
	}
	all.Wait()
	killed := map[string]int{}
	for _, ch := range lineages {
		ch.account(killed)
	}
	for _, s := range steps {
		testkit.Equal(c, s+": processes that were killed", killed[s], kills)
	}
}

// lineage is a source, and the processes that follow each other on it.
type lineage struct {
	*cell
	setting
	died int
}

// newLineage plans as many messages again that kill no process, and some that come twice.
func newLineage(c *cell, s setting, number int, at []string, random *rand.Rand) *lineage {
	for i, step := range at {
		id := fmt.Sprintf("%d-%d", number, i)
		s.Messages = append(s.Messages, planned{id, step}, planned{id + "-calm", ""})
	}
	random.Shuffle(len(s.Messages), func(i, j int) { s.Messages[i], s.Messages[j] = s.Messages[j], s.Messages[i] })
	for i := 0; i < 2*len(at); i += 5 {
		s.Messages = append(s.Messages, planned{s.Messages[i].ID, ""})
	}
	return &lineage{cell: c, setting: s}
}

// run starts a process after another, until one comes to the end of the source.
func (ch *lineage) run(program string) {
	text, _ := json.Marshal(ch.setting)
	for ended := time.Now().Add(8 * time.Minute); time.Now().Before(ended); {
		cmd := exec.Command(program, "-test.run", "^TestCrash$", "-test.timeout", "2m")
		cmd.Env = append(os.Environ(), crashVariable+"="+string(text))
		said, err := cmd.CombinedOutput()
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		switch {
		case err == nil:
			return
		case strings.Contains(string(said), "too many"): // connections, of other tests: it had not begun
			time.Sleep(100 * time.Millisecond)
			continue
		case !status.Signaled() || status.Signal() != syscall.SIGKILL:
			ch.Errorf("a process ended by itself: %v\n%s", err, said)
			return
		}
		ch.died++
	}
	ch.Error("the source is not worked off")
}

// number reads how many from the environment.
func number(t testing.TB, variable string, n int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return n
	}
	n, err := strconv.Atoi(text)
	testkit.Require(t, err == nil && n >= 1, "%s=%q is no number of times", variable, text)
	return n
}

// unraced is the program that runs, or the same built without -race: it starts in a fraction of the time.
func unraced(t *testing.T) string {
	t.Helper()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				path := filepath.Join(t.TempDir(), "unraced.test")
				if out, err := exec.Command("go", "test", "-c", "-race=false", "-vet=off", "-o", path, ".").CombinedOutput(); err != nil {
					t.Fatalf("build the test without -race: %v\n%s", err, strings.TrimSpace(string(out)))
				}
				return path
			}
		}
	}
	return testkit.Must(os.Executable())
}
