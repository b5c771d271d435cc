package idempotency_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// killsVariable says how often a process is killed at each step. Default: 1.
const killsVariable = "SPILLWAY_IDEMPOTENCY_KILLS"

// crashVariable holds the setting of a process that is to be killed.
const crashVariable = "SPILLWAY_IDEMPOTENCY_CRASH"

// step is where a process is killed.
type step struct{ id, title string }

var steps = []step{
	{"claimed", "after the claim"}, {"handled", "after the handler"}, {"committing", "before the commit"},
	{"committed", "after the commit, before the return"}, {"publishing", "after the return, before the publish"},
	{"published", "after the publish, before the mark and the ack"}, {"acking", "after the mark, before the ack"},
}

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
		accounts := map[string]map[string][]string{} // by database, by step: what is wrong
		skipped := map[string]bool{}
		var writing sync.Mutex
		t.Run(mode.id, func(t *testing.T) {
			for _, d := range columns {
				t.Run(d.name, func(t *testing.T) {
					t.Parallel()
					defer func() {
						writing.Lock()
						defer writing.Unlock()
						skipped[d.name] = t.Skipped()
					}()
					wrong := crash(newCell(t, d), program, mode.id == "I3")
					writing.Lock()
					defer writing.Unlock()
					accounts[d.name] = wrong
				})
			}
		})
		for _, s := range steps {
			r := row{id: mode.id + "-kill-" + s.id, title: "killed " + s.title + ": " + mode.title + ", outputs under one id, nothing lost"}
			r.on(t, func(t *testing.T, d database) {
				wrong, ended := accounts[d.name]
				if skipped[d.name] {
					t.Skip("as its campaign was")
				}
				testkit.Require(t, ended, "the campaign came to no end")
				for _, text := range wrong[s.id] {
					t.Error(text)
				}
			})
		}
	}
}

// atOnceOf is how many sources are worked off at once. Leases of the dead make their sources wait.
var atOnceOf = map[bool]int{false: 2, true: 8}

// crash has processes killed at every step, and returns what is wrong afterwards by step.
func crash(c *cell, program string, leases bool) map[string][]string {
	c.store(c.db)
	kills := number(c, killsVariable, 1)
	seed := rand.Uint64()
	c.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var at []string // a step for each kill
	for _, s := range steps {
		for range kills {
			at = append(at, s.id)
		}
	}
	random.Shuffle(len(at), func(i, j int) { at[i], at[j] = at[j], at[i] })
	var all sync.WaitGroup
	lineages := make([]*lineage, atOnceOf[leases])
	for i := range lineages {
		part := at[i*len(at)/len(lineages) : (i+1)*len(at)/len(lineages)]
		lineages[i] = newLineage(c, setting{Database: c.name, Address: c.address, Dir: c.TempDir(), Leases: leases}, i, part, random)
		all.Go(func() { lineages[i].run(program) })
	}
	all.Wait()
	account := newAccount(c, kills)
	for _, ch := range lineages {
		account.add(ch)
	}
	return account.wrong()
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
		s.Messages = append(s.Messages, planned{fmt.Sprintf("%d-%d", number, i), step}, planned{fmt.Sprintf("%d-%d-calm", number, i), ""})
	}
	random.Shuffle(len(s.Messages), func(i, j int) { s.Messages[i], s.Messages[j] = s.Messages[j], s.Messages[i] })
	for i := range s.Messages {
		if i%5 == 0 {
			s.Messages = append(s.Messages, planned{s.Messages[i].ID, ""})
		}
	}
	return &lineage{cell: c, setting: s}
}

// run starts a process after another, until one comes to the end of the source.
func (ch *lineage) run(program string) {
	text, err := json.Marshal(ch.setting)
	if err != nil {
		ch.Error(err)
		return
	}
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
