package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
)

const sealedText = "Ada Lovelace"

// keyFile writes a file of keys. The first one is the current one.
func keyFile(t *testing.T, ids ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "letters.keys")
	testkit.NoError(t, os.WriteFile(path, []byte(testkit.Keyring(ids...)), 0o600))
	return path
}

func sealerOf(t *testing.T, ids ...string) *seal.Sealer {
	t.Helper()
	ring := testkit.Must(seal.ReadKeyring(keyFile(t, ids...)))
	return testkit.Must(seal.New(ring, "tenant"))
}

// sealedLetter is a letter that a service sealed.
func sealedLetter(t *testing.T, s *seal.Sealer, id string) *message.Message {
	t.Helper()
	sealed, _, err := inside.Poison.Seal(t.Context(), s, clearLetter(id))
	testkit.NoError(t, err)
	return sealed
}

func clearLetter(id string) *message.Message {
	return letter(id, `{"currency":"USD","of":"`+sealedText+`"}`, func(l *poison.Letter) { l.Original.Metadata.Set("buyer", sealedText) })
}

// sealedShop has two letters of the key a, one of the key z, which is lost, and one that is not sealed.
func sealedShop(t *testing.T, d databases.Database) *shop {
	t.Helper()
	a, z := sealerOf(t, "a"), sealerOf(t, "z")
	return shopOn(t, d, d.Create(t), sealedLetter(t, a, "one"), sealedLetter(t, a, "two"), sealedLetter(t, z, "lost"), clearLetter("clear"))
}

// Features D14, V10: without its key no command prints a sealed letter, and says what to do; with it, all as it was.
func TestSealed_shown(t *testing.T) {
	s := sealedShop(t, databases.SQLite)
	edit := []string{"--edit", `{"currency":"EUR"}`}
	noKey := `sealed with key id "a": give the file of keys with --keys FILE or SPILLWAY_KEYS`
	s.steps([]step{
		{0, noKey, []string{"show", "one"}},
		{0, `"seal_key":"a"`, []string{"show", "one", "--json"}},
		{0, "sealed with key id \\\"a\\\"", []string{"show", "one", "--json"}},
		{0, "--keys", append([]string{"redrive", "one", "--dry-run"}, edit...)},
		{5, "3 letters left out: letter 1 is " + noKey, []string{"export"}},
		{0, `"seal_key":"z"`, []string{"list", "--json"}},
	})
	envelope := base64.StdEncoding.EncodeToString(s.letterOf("one").Original.Payload)
	for _, args := range [][]string{{"show", "one"}, {"show", "one", "--json"}, {"show", "one", "--format", "hex"}, {"export"}} {
		got := s.pipe(args...)
		text := got.out + got.err
		testkit.Check(t, !strings.Contains(text, envelope[:20]) && !strings.Contains(text, "payload, "),
			"%q prints the envelope: %s", args, text)
	}

	keys := keyFile(t, "b", "a")
	s.env = append(s.env, "SPILLWAY_KEYS="+keys)
	s.steps([]step{
		{0, "buyer = " + sealedText, []string{"show", "one"}},
		{0, `"of": "` + sealedText, []string{"show", "one"}},
		{0, `"seal_key":"a"`, []string{"show", "one", "--json"}},
		{0, `+   "currency": "EUR"`, append([]string{"redrive", "one", "--dry-run"}, edit...)},
		{0, `sealed with key id "z", which "` + keys + `" does not have: add the key as a further line`, []string{"show", "lost"}},
		{5, `1 letter left out: letter 3 is sealed with key id "z"`, []string{"export"}},
		{2, "no such file", []string{"show", "one", "--keys", "nosuch"}},
		{0, "nothing", []string{"erase", "--help"}},
	})
	testkit.NoError(t, os.Chmod(keys, 0o644))
	s.steps([]step{{2, "chmod 600", []string{"show", "one"}}})
}

// letterOf returns the letter with an id, as it is stored.
func (s *shop) letterOf(id string) letters.Letter {
	s.t.Helper()
	found, err := s.store.List(s.t.Context(), letters.Filter{IDs: []string{id}, Statuses: letters.Statuses()})
	testkit.Require(s.t, err == nil && len(found) == 1, "%v %v", found, err)
	return found[0]
}

// Features D14, V8: export --sealed needs no key, and import seals what was exported open. Both open as they were.
func TestSealed_moved(t *testing.T) {
	s := sealedShop(t, databases.SQLite)
	keys := keyFile(t, "b", "a")
	sealed := s.pipe("export", "--sealed")
	if sealed.code != 0 || strings.Count(sealed.out, "\n") != 4 || strings.Count(sealed.out, sealedText) != 2 { // payload and metadata of the clear one
		t.Fatalf("exit %d: %s %s", sealed.code, sealed.out, sealed.err)
	}
	opened := s.pipe("export", "--keys", keys)
	testkit.Require(t, opened.code == 5 && strings.Count(opened.out, "\n") == 3 &&
		strings.Count(opened.out, sealedText) == 6, "exit %d: %s %s", opened.code, opened.out, opened.err)
	for name, lines := range map[string]string{"sealed": sealed.out, "opened": opened.out} {
		to := newShop(t)
		to.input(lines, "import", "-", "--yes", "--keys", keys, "--clear", "tenant").wants(t, 0)
		for _, id := range []string{"one", "two", "clear"} {
			l := to.letterOf(id)
			got, err := l.Open(t.Context(), sealerOf(t, "b", "a"))
			want := clearLetter(id)
			testkit.Check(t, err == nil && l.Sealed && l.Original.Metadata["tenant"] == "blue" &&
				string(got.Original.Payload) == string(want.Payload) && got.Original.Metadata["buyer"] == sealedText,
				"%s: %s is sealed: %v, %+v, %v", name, id, l.Sealed, got.Original, err)
		}
	}
}

// Features D14, V9: reseal asks, leaves what is closed or leased, on record, and run again does the rest.
func TestReseal(t *testing.T) {
	s := sealedShop(t, databases.SQLite)
	taken := claim(t, s.store, letters.Filter{IDs: []string{"two"}})
	keys := keyFile(t, "b", "a")
	run := []string{"reseal", "--keys", keys, "--reason", "rotation", "--clear", "tenant"}
	s.steps([]step{
		{2, "--keys is empty", []string{"reseal", "--reason", "r"}},
		{2, "--reason is empty", []string{"reseal", "--keys", keys}},
		{0, "a\t2\t\nz\t1\t\n", []string{"reseal", "--dry-run"}},
		{0, "-\t1\tnot sealed\na\t2\twould be resealed\n", []string{"reseal", "--dry-run", "--keys", keys}},
		{0, `{"key":"a","letters":2}`, []string{"reseal", "--dry-run", "--json"}},
		{4, `seal 4 letters of shop with key id "b"?`, run},
		{3, "no letter needs", append(run, "--from", "nosuch", "--yes")},
		{5, `{"key":"b","resealed":2,"closed":1,`, append(run, "--yes", "--json")},
		{5, "1 letter left, because a program works on them", append(run, "--from", "a", "--yes")},
	})
	testkit.NoError(t, hidden.Of(s.store).Release(t.Context(), taken))
	s.steps([]step{
		{5, `sealed with key "z"`, append(run, "--yes")},
		{0, "b\t3\tcurrent\nz\t1\twould be resealed\n", []string{"reseal", "--dry-run", "--keys", keys}},
		{0, "rotation", []string{"audit", "--kind", "resealed"}},
		{0, "buyer = " + sealedText, []string{"show", "clear", "--keys", keyFile(t, "b")}},
		{0, "tenant = blue", []string{"show", "clear"}},
	})
	got := s.pipe("audit", "--kind", "resealed")
	testkit.Check(t, strings.Count(got.out, "rotation") == 3 && strings.Count(got.out, "ann") == 3,
		"the record: %s", got.out)
	l := s.letterOf("lost")
	testkit.Check(t, l.SealKey == "z", "the letter of the lost key has the key %q", l.SealKey)
}

// Features D14, V8: the command's worker leaves letters without their key, and brings them back as they were with it.
func TestSealed_work(t *testing.T) {
	s := sealedShop(t, databases.Postgres) // where the command's broker of tables is
	broker := s.broker("sql", "orders")
	s.subscribe(broker, "reader", "orders", 0)
	start := []string{"redrive", "--id", "one", "--reason", "INC-7", "--yes", "--detach"}
	work := []string{"work", "--broker", "sql", "--allow", "orders", "--once"}
	s.steps([]step{{0, "", start}, {0, "", work}})
	l := s.letterOf("one")
	testkit.Require(t, l.Status == letters.StatusWaiting && l.Sealed, "without a key: %s, sealed %v", l.Status, l.Sealed)
	work = append(work, "--keys", keyFile(t, "b", "a"))
	s.steps([]step{{0, "", start}, {0, "", work}})
	testkit.Equal(t, "with the key", s.letterOf("one").Status, letters.StatusRedriven)
	came := s.read(broker, "reader", "orders", 1)
	testkit.Require(t, len(came) != 0, "no message came back")
	msg, want := came[0], clearLetter("one")
	testkit.Check(t, msg.UUID == "one" && string(msg.Payload) == string(want.Payload) &&
		msg.Metadata["buyer"] == sealedText && msg.Metadata["tenant"] == "blue" && msg.Metadata[poison.KeySealed] == "",
		"%s came back with %q %v", msg.UUID, msg.Payload, msg.Metadata)
}
