package main

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V10: the commands do the same on every database, and what they did is on record.
func TestEveryDatabase(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := shopOn(t, d, address, incident()...)
		doctor := s.pipe("doctor")
		doctor.wants(t, 0, "this role can look and act")
		testkit.Check(t, !strings.Contains(doctor.out, "spillway:spillway"), "the doctor shows a password: %s", doctor.out)
		golden(t, "causes.pipe", s.pipe("causes").out)
		s.pipe("show", "late").wants(t, 0, "90071992547409931.10")
		lines := strings.SplitAfter(s.pipe("list").out, "\n") // the last one is empty
		testkit.Equal(t, "the newest", s.pipe("list", "--newest", "--limit", "2").out, lines[4]+lines[3])
		cause, _, _ := strings.Cut(s.pipe("causes").out, "\t")
		s.pipe("discard", "--cause", cause[:8], "--reason", "test tenant", "--yes").wants(t, 0, "discarded 3 letters\n")
		record := s.pipe("audit", "--kind", "discarded", "--who", "ann")
		testkit.Check(t, strings.Count(record.out, "\n") == 3 && strings.Count(record.out, "test tenant") == 3,
			"the record: %s %s", record.out, record.err)
		s.pipe("audit", "1").wants(t, 0, "stored", "discarded")
		testkit.Equal(t, "discarded", strings.Count(s.pipe("list", "--status", "discarded").out, "\n"), 3)
		testkit.Must(s.db.Exec(`DELETE FROM spillway_dead_letters WHERE seq = 1`)) // by hand: the numbers stay behind
		s.pipe("doctor").wants(t, 5, "3 letters are counted, and 2 are there", "doctor --repair-counts")
		s.pipe("doctor", "--repair-counts").wants(t, 0, "repaired those of 1 causes")
		s.pipe("doctor").wants(t, 0, "those of the letters")
	})
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
			to.input(lines.out, args...).wants(t, 0)
		}
		got := identities(t, to.store)
		testkit.Check(t, slices.Equal(got, want), "imported\n%q\nwant\n%q", got, want)
		to.input(lines.out+"{}\n", "import", "-", "--yes").wants(t, 2, "line 6")
		to.input(lines.out, "import", "-").wants(t, 4, "import 5 letters into shop?")
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
	for _, args := range [][]string{{"causes"}, {"list"}, {"show", "1"}, {"export"}, {"audit"}} {
		s.pipe(args...).wants(t, 0)
	}
	s.pipe("discard", "--all", "--reason", "why", "--yes").wants(t, 1, "may not")
	s.pipe("doctor").wants(t, 5, "can look, and change nothing")
	testkit.Returns(t, 5)(s.store.Count(t.Context(), letters.Filter{}))
}

// A wrong database gets no tables, and a wrong path no file.
func TestLookingMakesNothing(t *testing.T) {
	s := newShop(t)
	file := t.TempDir() + "/empty.db"
	testkit.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, command := range []string{"causes", "list", "doctor"} {
		got := s.pipe(command, "--db", "sqlite://"+file)
		testkit.Check(t, got.code != 0 && strings.Contains(got.err+got.out, "spillway_schema"), "%s: %+v", command, got)
		missing := s.pipe(command, "--db", "sqlite://"+file+".no")
		testkit.Check(t, missing.code != 0, "%s: a file that is not there: %+v", command, missing)
	}
	testkit.Equal(t, "the size of the empty file", testkit.Must(os.Stat(file)).Size(), 0)
	_, err := os.Stat(file + ".no")
	testkit.Check(t, os.IsNotExist(err), "the missing file: %v", err)
}

// Manual pages and completions are there for those who package the command.
func TestManualAndCompletion(t *testing.T) {
	s, folder := newShop(t), t.TempDir()
	s.pipe("man", folder).wants(t, 0)
	page, err := os.ReadFile(folder + "/redrive-show.1")
	testkit.Check(t, err == nil && strings.Contains(string(page), "redrive show 1042"), "%s, %v", page, err)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		s.pipe("completion", shell).wants(t, 0, "redrive")
	}
	s.pipe("__complete", "list", "--status", "").wants(t, 0, "quarantined")
}

// Features D14, V9, V10: purge deletes what flags choose, after a dry run. The record stays.
func TestPurge(t *testing.T) {
	s := newShop(t, incident()...)
	s.pipe("discard", "--all", "--reason", "a test", "--yes")
	old := []string{"purge", "--status", "discarded", "--older-than", "0s"}
	s.steps([]step{
		{2, "--status", []string{"purge", "--older-than", "0s", "--reason", "retention"}},
		{2, "--older-than", []string{"purge", "--status", "discarded", "--reason", "retention"}},
		{2, "--reason", old},
		{0, "would delete 5 letters", append(old, "--dry-run")},
		{0, `"chosen":5,"purged":0,"left":0,"dry_run":true`, append(old, "--dry-run", "--json")},
		{4, "delete 3 letters of shop for good?", append(old, "--failure-reason", "no_such_customer", "--reason", "policy")},
		{0, "deleted 3 letters", append(old, "--failure-reason", "no_such_customer", "--reason", "policy", "--yes")},
		{0, "purged", []string{"audit", "--id", "id-0"}},
		{4, "delete 2 letters of shop for good?", append(old, "--reason", "retention")},
		{0, "deleted 2 letters", append(old, "--reason", "retention", "--yes")},
	})
}

// claim leases the first letter that f chooses for an hour.
func claim(t *testing.T, store *letters.Store, f letters.Filter) inside.Claim[letters.Letter] {
	t.Helper()
	seqs := testkit.Must(hidden.Of(store).Free(t.Context(), f, 1))
	c, err := hidden.Of(store).Claim(t.Context(), f, seqs, time.Hour)
	testkit.Require(t, err == nil && len(c.Letters) == 1, "%v %v", c, err)
	return c
}

// Features V9, V10, promise P6: what was given up is not redriven until it is put back, and the command says so.
func TestDiscard(t *testing.T) {
	s := newShop(t, letter("id-0", "{}"), letter("id-1", "{}"), letter("id-2", "{}"), letter("id-3", "{}"))
	const back = "redrive restore"
	s.steps([]step{
		{0, "discarded 2 letters", []string{"discard", "1", "id-1", "--reason", "a test", "--yes"}},
		{3, "redrive show 1", []string{"discard", "1", "--reason", "again", "--yes"}},
		{2, "give one", []string{"discard", "3", "--topic", "orders", "--reason", "both", "--yes"}},
		{2, back, []string{"redrive", "--status", "discarded", "--dry-run"}},
		{2, "no message any more", []string{"redrive", "--status", "erased", "--reason", "x", "--yes"}},
		{0, "would leave out 2 letters: they are discarded; restore them first", []string{"redrive", "--status", "all", "--dry-run"}},
		{3, "would leave out 1 letter: they are discarded; restore them first", []string{"redrive", "1", "--status", "all", "--dry-run"}},
		{3, back, []string{"redrive", "1", "2", "--reason", "x", "--yes"}},
		{2, "--reason is empty", []string{"restore", "1"}},
		{2, "--all", []string{"restore", "--reason", "a mistake"}},
		{3, "redrive show 3", []string{"restore", "3", "--reason", "it waits", "--yes"}},
		{0, "restored 1 letter", []string{"restore", "1", "--reason", "a mistake", "--yes"}},
		{0, `{"chosen":1,"left":0,"restored":1}`, []string{"restore", "--all", "--reason", "a mistake", "--yes", "--json"}},
		{0, "a mistake", []string{"audit", "1"}},
		{0, "would redrive 4 letters", []string{"redrive", "--all", "--dry-run"}},
	})
	got := s.pipe("causes", "--topic", "none")
	testkit.Check(t, !strings.Contains(got.err, "--status all") && strings.Contains(got.err, "--status"),
		"causes suggests a state that no redrive takes: %s", got.err)
}

const erased = "ann.smith@example.com"

// Features D14, V10: a person's data are erased after a dry run and a question, in no record and in no export.
func TestEraseCommand(t *testing.T) {
	bothWays(t, append(incident(), letter("ann", `{"email":"`+erased+`"}`, func(l *poison.Letter) {
		l.Original.Metadata.Set("customer", erased)
		l.Failure.Description = "no mailbox " + erased
	})), testErase)
}

func testErase(t *testing.T, s *shop) {
	delayed := testkit.Must(delay.NewStore(t.Context(), s.db, "shop"))
	waits := message.NewMessage("waits", nil)
	waits.Metadata.Set("customer", erased)
	testkit.NoError(t, delays.In(delayed).Put(t.Context(), "orders", waits, time.Hour))
	whom := []string{"erase", "--metadata", "customer=" + erased, "--reason", "request 17"}
	s.steps([]step{
		{2, "nothing is chosen", []string{"erase", "--reason", "r"}},
		{2, "both given", []string{"erase", "--reason", "r", "--id", "1", "--metadata", "a=b"}},
		{2, "key=value", []string{"erase", "--reason", "r", "--metadata", "a="}},
		{2, "--reason is empty", []string{"erase", "--id", "1"}},
		{2, "--receiver-keys", []string{"erase", "--id", "1", "--reason", "r", "--receiver-keys", "hash"}},
		{2, "Act.Reason has a value", []string{"erase", "--metadata", "customer=" + erased, "--reason", "for " + erased, "--yes"}},
		{0, "would erase 1 letter, 1 message that wait, 0 keys", append(whom, "--dry-run")},
		{4, "erase 1 letter, 1 message that wait, 0 keys, 0 texts of campaigns of shop for good?", whom},
		{0, "erased 1 letter, 1 message that wait", append(whom, "--yes")},
		{0, `"letters":0`, append(whom, "--yes", "--json")},
	})
	all := s.pipe("list", "--status", "all").out + s.pipe("audit").out + s.pipe("causes", "--status", "all").out + s.pipe("show", "ann").out
	testkit.Check(t, !strings.Contains(all, erased) && strings.Contains(all, "erased") &&
		strings.Contains(all, "request 17") && strings.Contains(all, "sha256:"), "the commands say\n%s", all)
	got := s.pipe("export", "--status", "all")
	testkit.Check(t, s.api || strings.Count(got.out, "\n") == 5 && !strings.Contains(got.out, "no mailbox"),
		"exported\n%s", got.out)
	s.steps([]step{{3, "", []string{"redrive", "--id", "ann", "--dry-run"}}})
}
