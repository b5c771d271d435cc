package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/middleware/breaker/sqlshare"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// The version says which release the command is of, without a database: it must be that of the service.
func TestVersion(t *testing.T) {
	out, err := exec.Command(binary, "--version").Output()
	want := regexp.MustCompile(`^redrive \S+, go1\.\S+\n$`)
	testkit.Check(t, err == nil && want.Match(out), "%q, %v", out, err)
}

// Feature V10: the exit codes that help promises. What cannot be is refused by its flag before anything is done.
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
		{2, "unknown command", "reason"},
		{2, "takes a cause", "cause"},
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
		{2, "--status is empty", "redrive --status=" + all},
		{2, "--group is empty", "drain orders.dlq --broker sql --allow orders --group="},
		{2, "an argument is empty", "redrive 1 ''"},

		{2, "--rate is -1 letters per second: it must be 0.001 to 1000000; 0 is no limit", "redrive --rate -1" + all},
		{2, "--canary-wait is 0s", "redrive --canary-wait 0s" + all},
		{2, "--stop-at is 7: it is a share", "redrive --stop-at 7" + all},
		{2, "--concurrency is 257: it must be at most 256", "redrive --concurrency 257" + all},
		{2, "SEQs and flags that choose letters are both given", "redrive 1" + all},
		{2, "--to and first-stage are both given", "redrive --to orders --first-stage" + all},
		{2, `--to is "orders", which is not in --allow`, "redrive --to orders --allow payments" + all},
		{2, `--kind is "dicarded": use one of stored, `, "audit --kind dicarded"},
		{2, "--limit is 0: it must be at least 1", "audit --limit 0"},
		{2, `--older-than is "-1h": use a time ago`, "purge --status discarded --older-than -1h --reason x --yes"},

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
	for _, line := range []string{"redrive --all --yes --detach", "redrive --handler shipping --dry-run", "discard --all --yes",
		"restore --all --yes", "purge --status waiting --older-than 0s --yes"} {
		if !s.api || !strings.HasPrefix(line, "purge") {
			s.pipe(strings.Fields(line+" --reason timeout")...).
				wants(t, 2, `"timeout" is a reason of letters: choose them by --failure-reason`)
		}
	}
	s.pipe("discard", "--failure-reason", "timeout", "--reason", "timeout", "--yes").wants(t, 0)
	s.pipe("restore", "4", "--reason", "timeout", "--yes").wants(t, 0)
	testkit.Returns(t, 5)(s.store.Count(t.Context(), letters.Filter{}))
}

// Promise P6: behind a pooler in transaction mode the command lists letters each time, without a word in its address.
func TestPooler(t *testing.T) {
	s := shopOn(t, databases.Postgres, databases.Postgres.Create(t), letter("of-shop", "{}"))
	s.env = append(s.env, "SPILLWAY_DB="+services.PgBouncer(t, s.url, "pool_mode = transaction"))
	for range 6 {
		s.pipe("list").wants(t, 0, "of-shop")
	}
}

// Feature V10: a freeze from the command line is there for the breakers, with its reason, and ends by hand.
func TestBreaker(t *testing.T) { bothWays(t, incident(), testBreaker) }

func testBreaker(t *testing.T, s *shop) {
	if !s.api {
		s.pipe("breaker", "list").wants(t, 1, "share no outages in the database")
	}
	store := testkit.Must(sqlshare.NewStore(t.Context(), s.db, "shop"))
	s.steps([]step{
		{0, "all messages pass", []string{"breaker", "list"}},
		{2, "--reason is empty", []string{"breaker", "open", "billing"}},
		{4, "hold the messages of the handler billing of shop in all instances?", []string{"breaker", "open", "billing", "--reason", "INC-7"}},
		{0, "the handler billing of shop: frozen", []string{"breaker", "open", "billing", "--reason", "INC-7\x1b[31m", "--yes"}},
		{0, "billing\t\tfrozen", []string{"breaker", "list"}},
		{3, "there is no freeze", []string{"breaker", "close", "--reason", "x"}},
	})
	obeyed(t, "breaker list", s.terminal(80, "", "breaker", "list", "--color", "never").out)
	frozen := testkit.Must(store.List(t.Context()))
	testkit.Check(t, len(frozen) == 1 && frozen[0].Actor == "ann" && frozen[0].State == circuit.Frozen, "%+v", frozen)
	got := s.pipe("breaker", "close", "billing", "--reason", "done", "--json")
	s.steps([]step{{0, "held: the handler billing", []string{"audit", "--kind", "freeze"}}})
	frozen, err := store.List(t.Context())
	testkit.Check(t, err == nil && got.code == 0 && len(frozen) == 0,
		"exit %d: %s; %v, %v", got.code, got.err, frozen, err)
}

// Feature V10: a setting comes from the flags, the environment or a file. The first that has a url or a db says where the
// letters are.
func TestSettings(t *testing.T) {
	s, empty := newShop(t, incident()...), newShop(t)
	folder := t.TempDir()
	write := func(name, text string) string {
		testkit.NoError(t, os.WriteFile(folder+"/"+name, []byte(text), 0o600))
		return folder + "/" + name
	}
	here := write("here.conf", "db = "+s.url+"\nservice = shop\n")
	there := write("there.conf", "db = "+empty.url+"\nservice = other\n")
	prod := write("prod.conf", "url = https://shop.example.com/deadletters/\ntoken-file = token\n")
	around := s.env
	home := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	s.env = home
	s.steps([]step{
		{0, "id-0", []string{"list", "--config", here}},
		{0, "no letter is", []string{"list", "--config", there}},
		{0, "id-0", []string{"list", "--config", there, "--db", s.url, "--service", "shop"}},
		{2, "--db", []string{"list"}},
		{2, "line 1", []string{"list", "--config", write("wrong.conf", "database = x\n")}},
		{2, "both a url and a db", []string{"list", "--url", "https://shop.example.com/", "--db", s.url}},
		{2, "the API knows who you are", []string{"list", "--config", prod, "--by", "bob"}},
		{2, "--token-file: open token", []string{"list", "--config", prod}},
		{2, "name or a password", []string{"list", "--config", prod, "--url", "https://ann:hunter2@x"}},
		{2, "to this machine alone", []string{"list", "--config", prod, "--url", "http://shop.example.com"}},
	})
	s.env = append(home, "SPILLWAY_CONFIG="+here)
	s.steps([]step{{0, "id-0", []string{"list"}}, {0, "no letter is", []string{"list", "--config", there}}})
	s.env = around
	s.steps([]step{{0, "id-0", []string{"list"}}, {0, "id-0", []string{"list", "--config", there, "--service", "shop"}}})
}
