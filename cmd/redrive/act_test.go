package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V10: the commands do the same on every database, and what they did is on record.
func TestEveryDatabase(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := shopOn(t, d, address, incident()...)
		if got := s.pipe("doctor"); got.code != 0 || !strings.Contains(got.out, "this role can look and act") || strings.Contains(got.out, "spillway:spillway") {
			t.Fatalf("exit %d: %s %s", got.code, got.out, got.err)
		}
		golden(t, "causes.pipe", s.pipe("causes").out)
		if got := s.pipe("show", "late"); got.code != 0 || !strings.Contains(got.out, "90071992547409931.10") {
			t.Errorf("exit %d: %s %s", got.code, got.out, got.err)
		}
		if got, want := s.pipe("list", "--newest", "--limit", "2"), reversed(s.pipe("list").out); !strings.HasPrefix(want, got.out) || strings.Count(got.out, "\n") != 2 {
			t.Errorf("the newest: %s %s, want the first two of %s", got.out, got.err, want)
		}
		cause, _, _ := strings.Cut(s.pipe("causes").out, "\t")
		if got := s.pipe("discard", "--cause", cause[:8], "--reason", "test tenant", "--yes"); got.code != 0 || got.out != "discarded 3 letters\n" {
			t.Errorf("exit %d: %s %s", got.code, got.out, got.err)
		}
		record := s.pipe("audit", "--kind", "discarded", "--who", "ann")
		testkit.Check(t, strings.Count(record.out, "\n") == 3 && strings.Count(record.out, "test tenant") == 3,
			"the record: %s %s", record.out, record.err)
		if got := s.pipe("audit", "1"); !strings.Contains(got.out, "stored") || !strings.Contains(got.out, "discarded") {
			t.Errorf("the life of letter 1: %s %s", got.out, got.err)
		}
		if got := s.pipe("list", "--status", "discarded"); strings.Count(got.out, "\n") != 3 {
			t.Errorf("discarded: %s %s", got.out, got.err)
		}
	})
}

// reversed are the lines of a text from the last to the first.
func reversed(text string) string {
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n")+"\n", "\n")
	slices.Reverse(lines)
	return strings.Join(lines, "")
}

// Feature V10: what export wrote, import stores byte for byte, in another kind of database too, and once.
func TestExportImport(t *testing.T) {
	from := newShop(t, incident()...)
	lines := from.pipe("export")
	testkit.Require(t, lines.code == 0, "%v", lines.err)
	want := identities(t, from.store)
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		to := shopOn(t, d, address)
		for _, args := range [][]string{{"import", "-", "--yes"}, {"import", "-", "--yes", "--json"}} {
			if got := to.input(lines.out, args...); got.code != 0 {
				t.Fatalf("exit %d: %s %s", got.code, got.out, got.err)
			}
		}
		if got := identities(t, to.store); !slices.Equal(got, want) {
			t.Errorf("imported\n%q\nwant\n%q", got, want)
		}
		if got := to.input(lines.out+"{}\n", "import", "-", "--yes"); got.code != 2 || !strings.Contains(got.err, "line 6") {
			t.Errorf("a broken file: exit %d: %s", got.code, got.err)
		}
		if got := to.input(lines.out, "import", "-"); got.code != 4 || !strings.Contains(got.err, "import 5 letters into shop?") {
			t.Errorf("without --yes: exit %d: %s", got.code, got.err)
		}
	})
}

// identities are all bytes of the letters that wait.
func identities(t *testing.T, store *letters.Store) (all []string) {
	t.Helper()
	found := testkit.Must(store.List(t.Context(), letters.Filter{}))
	for _, l := range found {
		msg := l.Encode()
		all = append(all, fmt.Sprintf("%q %q %q %s", msg.UUID, msg.Payload, fmt.Sprint(msg.Metadata), l.DeadLetterTopic))
	}
	slices.Sort(all)
	return all
}

func TestReadOnlyRoleOnPostgres(t *testing.T) {
	s := shopOn(t, databases.Postgres, databases.Postgres.Create(t), incident()...)
	address := testkit.Must(url.Parse(s.url))
	role, schema := "reader_"+strings.ToLower(rand.Text()[:12]), address.Query().Get("search_path")
	for _, statement := range []string{
		`CREATE ROLE ` + role + ` LOGIN PASSWORD 'unknown'`, `GRANT USAGE ON SCHEMA ` + schema + ` TO ` + role,
		`GRANT SELECT ON ALL TABLES IN SCHEMA ` + schema + ` TO ` + role,
	} {
		testkit.Must(s.db.Exec(statement))
	}
	t.Cleanup(func() {
		_, err := s.db.Exec(`DROP OWNED BY ` + role + `; DROP ROLE ` + role)
		testkit.Check(t, err == nil, "%v", err)
	})
	address.User = url.UserPassword(role, "unknown")
	s.env = append(s.env, "SPILLWAY_DB="+address.String())
	readOnly(t, s)
}

func readOnly(t *testing.T, s *shop) {
	t.Helper()
	for _, args := range [][]string{{"causes"}, {"list"}, {"show", "1"}, {"export"}, {"audit"}} {
		if got := s.pipe(args...); got.code != 0 {
			t.Errorf("%v: exit %d: %s", args, got.code, got.err)
		}
	}
	if got := s.pipe("discard", "--all", "--reason", "why", "--yes"); got.code != 1 || !strings.Contains(got.err, "may not") {
		t.Errorf("discard: exit %d: %s", got.code, got.err)
	}
	if got := s.pipe("doctor"); got.code != 5 || !strings.Contains(got.out, "can look, and change nothing") {
		t.Errorf("doctor: exit %d: %s %s", got.code, got.out, got.err)
	}
	testkit.Returns(t, 5)(s.store.Count(t.Context(), letters.Filter{}))
}

// A wrong database gets no tables, and a wrong path no file.
func TestLookingMakesNothing(t *testing.T) {
	s := newShop(t)
	file := t.TempDir() + "/empty.db"
	testkit.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, command := range []string{"causes", "list", "doctor"} {
		if got := s.pipe(command, "--db", "sqlite://"+file); got.code == 0 || !strings.Contains(got.err+got.out, "spillway_schema") {
			t.Errorf("%s: exit %d: %s", command, got.code, got.err)
		}
		if got := s.pipe(command, "--db", "sqlite://"+file+".no"); got.code == 0 {
			t.Errorf("%s: a file that is not there", command)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Size() != 0 {
		t.Errorf("the empty file: %v, %v", info, err)
	}
	if _, err := os.Stat(file + ".no"); !os.IsNotExist(err) {
		t.Errorf("the missing file: %v", err)
	}
}

// Payloads go through the program of --redact, and are not shown if it fails.
func TestRedact(t *testing.T) {
	s := newShop(t, incident()...)
	if got := s.pipe("show", "4", "--redact", "sed s/4111/XXXX/"); !strings.Contains(got.out, "XXXX") || strings.Contains(got.out, "4111") {
		t.Errorf("%s %s", got.out, got.err)
	}
	for _, more := range [][]string{{"--redact", "exit 3"}, {"--no-payload"}, {"--redact", "exit 3", "--json"}, {"--no-payload", "--json"}} {
		if got := s.pipe(append([]string{"show", "4"}, more...)...); got.code != 0 || strings.Contains(got.out, "4111") {
			t.Errorf("%v: exit %d: %s", more, got.code, got.out)
		}
	}
}

// A file of the configuration has what no flag and no variable has.
func TestConfigFile(t *testing.T) {
	s := newShop(t, incident()...)
	file := t.TempDir() + "/redrive.conf"
	testkit.NoError(t, os.WriteFile(file, []byte("# of the shop\ndb = "+s.url+"\nservice=shop\n"), 0o600))
	s.env = []string{"SPILLWAY_CONFIG=" + file}
	if got := s.pipe("list"); got.code != 0 || strings.Count(got.out, "\n") != 5 {
		t.Errorf("exit %d: %s %s", got.code, got.out, got.err)
	}
	if got := s.pipe("list", "--service", "other"); got.code != 3 {
		t.Errorf("a flag is weaker than the file: exit %d", got.code)
	}
	testkit.NoError(t, os.WriteFile(file, []byte("database = x\n"), 0o600))
	if got := s.pipe("list"); got.code != 2 || !strings.Contains(got.err, "line 1") {
		t.Errorf("exit %d: %s", got.code, got.err)
	}
}

// Manual pages and completions are there for those who package the command.
func TestManualAndCompletion(t *testing.T) {
	s, folder := newShop(t), t.TempDir()
	if got := s.pipe("man", folder); got.code != 0 {
		t.Fatal(got.err)
	}
	page, err := os.ReadFile(folder + "/redrive-show.1")
	testkit.Check(t, err == nil && strings.Contains(string(page), "redrive show 1042"), "%s, %v", page, err)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := s.pipe("completion", shell); got.code != 0 || len(got.out) < 1000 {
			t.Errorf("%s: exit %d", shell, got.code)
		}
	}
	if got := s.pipe("__complete", "list", "--status", ""); !strings.Contains(got.out, "quarantined") {
		t.Errorf("completion of --status: %s", got.out)
	}
}

// Ctrl-C ends a command with its own exit code.
func TestInterrupt(t *testing.T) {
	s := newShop(t, incident()...)
	cmd := exec.CommandContext(context.Background(), binary, "show", "4", "--redact", "kill -INT $PPID; sleep 60")
	cmd.Env = s.env
	var errs strings.Builder
	cmd.Stderr = &errs
	code := s.code(cmd.Run())
	testkit.Check(t, code == 130, "exit %d: %s", code, errs.String())
}
