package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

// The version says which release the command is of, without a database: it must be that of the service.
func TestVersion(t *testing.T) {
	out, err := exec.Command(binary, "--version").Output()
	want := regexp.MustCompile(`^redrive \S+, go1\.\S+\n$`)
	testkit.Check(t, err == nil && want.Match(out), "%q, %v", out, err)
}

// Feature V10: the exit codes that redrive help exit-codes promises. A value that is empty, or cannot be, is refused
// before anything is done: the error names the flag, and what may be given.
func TestExitCodes(t *testing.T) { bothWays(t, incident(), testExitCodes) }

func testExitCodes(t *testing.T, s *shop) {
	ofDatabases := regexp.MustCompile(`--db|--service`)
	const all = " --all --reason x --yes --detach"
	for _, c := range []struct {
		code int
		says string
		line string
	}{
		{0, "", "causes"},
		{0, "", "help exit-codes"},
		{0, "no letter is", "causes --topic other"},
		{2, "unknown command", "cause"},
		{2, `unknown command "nosuch"`, "nosuch --help"},
		{2, "unknown flag", "list --topics x"},
		{2, "--class", "list --class bad"},
		{2, "--since", "list --since yesterday"},
		{2, "takes", "show"},
		{2, "--db", "list --db nothing"},
		{2, "cannot be opened", "list --db sqlite:///nowhere/at.all"},
		{3, "no letter has", "show 999"},
		{3, "no cause begins", "list --cause zz"},
		{3, "these services have: shop", "list --service shpo"},
		{2, "here are shop", "list --service="},
		{2, "--reason is empty", "discard --cause a"},
		{2, "nothing chooses", "discard --reason why"},
		{4, "add --yes", "discard --all --reason why"},
		{3, "no letter is chosen", "discard --topic other --reason why --yes"},
		{2, "--allow is empty", "drain x"},
		{2, "--naming", "drain x --allow y --naming camels"},

		{2, "--cause is empty: give a value, or leave the flag out", "discard --topic orders --reason x --yes --cause="},
		{2, `--failure-reason is "f,", which has an empty value`, "discard --reason x --yes --failure-reason f,"},
		{2, "--status is empty", "redrive --status=" + all},
		{2, "--edit is empty", "redrive --edit=" + all},
		{2, "--not-before is empty", "redrive --not-before=" + all},
		{2, "--metadata is empty", "erase --id id-0 --metadata="},
		{2, "--from is empty", "reseal --keys k --from="},
		{2, "--who is empty", "audit --who="},
		{2, "--group is empty", "drain orders.dlq --broker sql --allow orders --group="},
		{2, "an argument is empty", "redrive 1 ''"},

		{2, "--rate is -1 letters per second: it must be 0.001 to 1000000; 0 is no limit", "redrive --rate -1" + all},
		{2, "--rate is NaN", "redrive --rate NaN" + all},
		{2, "--max is -3: it must be at least 0", "redrive --max -3" + all},
		{2, "--canary-wait is 0s", "redrive --canary-wait 0s" + all},
		{2, "--stop-at is 7: it is a share", "redrive --stop-at 7" + all},
		{2, "--concurrency is 257: it must be at most 256", "redrive --concurrency 257" + all},
		{2, "SEQs and flags that choose letters are both given", "redrive 1" + all},
		{2, "--to and first-stage are both given", "redrive --to orders --first-stage" + all},
		{2, `--to is "orders", which is not in --allow`, "redrive --to orders --allow payments" + all},
		{2, "RATE is 9e+09 letters per second", "rate 9f3a 9e9 --reason x"},
		{2, `--kind is "dicarded": use one of stored, `, "audit --kind dicarded"},
		{2, "--limit is 0: it must be at least 1", "audit --limit 0"},
		{2, "--after is -1: it must not be negative", "audit --after -1"},
		{2, "--limit is 1001: it must be at most 1000", "causes --limit 1001"},
		{2, `--older-than is "-1h": use a time ago`, "purge --status discarded --older-than -1h --reason x --yes"},
		{2, "--until and --older-than are both given", "purge --status discarded --older-than 1h --until 2h --reason x --yes"},
		{2, "--rate is -1", "drain orders.dlq --allow orders --rate -1"},
		{2, `--format is "xml": use one of auto, `, "show 1 --format xml"},

		{0, "", "redrive 1 --set tenant= --dry-run"}, // metadata may be set to nothing
		{0, "", "discard --id id-0 --reason why --yes"},
	} {
		if s.api && ofDatabases.MatchString(c.line) {
			continue
		}
		t.Run(c.line, func(t *testing.T) {
			args := strings.Fields(c.line)
			for i := range args {
				args[i] = strings.Trim(args[i], "'")
			}
			got := s.pipe(args...)
			testkit.Check(t, got.code == c.code && strings.Contains(got.err, c.says) && (c.code != 2 || got.out == ""),
				"exit %d, want %d; it says %q, want %q; %s", got.code, c.code, got.err, c.says, got.out)
		})
	}
	testkit.Returns(t, 4)(s.store.Count(t.Context(), letters.Filter{}))
}

// Words for the record that are the reason of letters were meant to choose them: --failure-reason does.
func TestReasonThatChooses(t *testing.T) { bothWays(t, incident(), testReasonThatChooses) }

func testReasonThatChooses(t *testing.T, s *shop) {
	for _, c := range []struct {
		line string
		code int
	}{
		{"redrive --all --reason timeout --yes --detach", 2},
		{"redrive --handler shipping --reason timeout --dry-run", 2},
		{"discard --all --reason timeout --yes", 2},
		{"purge --status waiting --older-than 0s --reason timeout --yes", 2},
		{"discard --failure-reason timeout --reason timeout --yes", 0},
		{"restore --all --reason timeout --yes", 2},
		{"restore 4 --reason timeout --yes", 0},
	} {
		if s.api && strings.HasPrefix(c.line, "purge") {
			continue
		}
		got := s.pipe(strings.Fields(c.line)...)
		if got.code != c.code || c.code == 2 && !strings.Contains(got.err, `"timeout" is a reason of letters: choose them by --failure-reason`) {
			t.Errorf("%s: exit %d: %s%s", c.line, got.code, got.out, got.err)
		}
	}
	testkit.Returns(t, 5)(s.store.Count(t.Context(), letters.Filter{}))
}

// Promise P6: of services that have one table, each finds its own letters, and a name that is misspelt finds the names
// that there are. A file of SQLite can have letters of no service.
func TestServicesOfOneTable(t *testing.T) {
	s := newShop(t, letter("of-shop", "{}"))
	for _, name := range []string{"billing", "zoo", ""} {
		store, err := letters.NewStore(t.Context(), s.db, settings.Shared{Service: name})
		if err == nil {
			err = store.Publish("orders.dlq", letter("of-"+name, "{}"))
		}
		testkit.NoError(t, err)
	}
	for _, name := range []string{"billing", "zoo", "", "shop"} {
		listed := s.pipe("list", "--service", name)
		testkit.Check(t, listed.code == 0 && strings.Count(listed.out, "\n") == 1 &&
			strings.Contains(listed.out, "\tof-"+name+"\t"),
			"--service %s: exit %d: %s%s", name, listed.code, listed.out, listed.err)
	}
	s.steps([]step{
		{3, "these services have: billing, shop, zoo\n", []string{"list", "--service", "shpo"}},
		{0, "discarded 1 letter", []string{"discard", "--service", "zoo", "--all", "--reason", "closed", "--yes"}},
	})
}

// Promise P6: behind a pooler in transaction mode, the command lists letters each time, with an address that says
// nothing of it.
func TestPooler(t *testing.T) {
	s := shopOn(t, databases.Postgres, databases.Postgres.Create(t), letter("of-shop", "{}"))
	s.env = append(s.env, "SPILLWAY_DB="+services.PgBouncer(t, s.url, "pool_mode = transaction"))
	for range 6 {
		if got := s.pipe("list"); got.code != 0 || !strings.Contains(got.out, "of-shop") {
			t.Errorf("exit %d: %s%s", got.code, got.out, got.err)
		}
	}
}

// Feature V10: a freeze from the command line is there for the breakers of the service, with its reason, and ends by
// hand.
func TestBreaker(t *testing.T) { bothWays(t, incident(), testBreaker) }

func testBreaker(t *testing.T, s *shop) {
	if got := s.pipe("breaker", "list"); !s.api && (got.code != 1 || !strings.Contains(got.err, "not in this database")) {
		t.Errorf("a service without shared breakers: exit %d: %s", got.code, got.err)
	}
	store := testkit.Must(breaker.NewStore(t.Context(), s.db, "shop"))
	s.steps([]step{
		{0, "all messages pass", []string{"breaker", "list"}},
		{2, "--reason is empty", []string{"breaker", "open", "billing"}},
		{4, "hold the messages of the handler billing of shop in all instances?", []string{"breaker", "open", "billing", "--reason", "INC-7"}},
		{0, "the handler billing of shop: frozen", []string{"breaker", "open", "billing", "--reason", "INC-7\x1b[31m", "--yes"}},
		{0, "billing\t\tfrozen", []string{"breaker", "list"}},
		{3, "there is no freeze", []string{"breaker", "close"}},
	})
	obeyed(t, "breaker list", s.terminal(80, "", "breaker", "list", "--color", "never").out)
	frozen, err := store.List(t.Context())
	testkit.Check(t, err == nil && len(frozen) == 1 && frozen[0].Actor == "ann" && frozen[0].State == breaker.Frozen,
		"%+v, %v", frozen, err)
	got := s.pipe("breaker", "close", "billing", "--reason", "done", "--json")
	s.steps([]step{{0, "held: the handler billing", []string{"audit", "--kind", "freeze"}}})
	frozen, err = store.List(t.Context())
	testkit.Check(t, err == nil && got.code == 0 && len(frozen) == 0,
		"exit %d: %s; %v, %v", got.code, got.err, frozen, err)
}
