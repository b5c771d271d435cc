package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
)

// Feature V10: what people and programs see, in a pipe, on terminals of 80 and 200 columns, with and without colour.
func TestLook(t *testing.T) { bothWays(t, incident(), testLook) }

func testLook(t *testing.T, s *shop) {
	for name, args := range map[string][]string{
		"causes": {"causes"}, "list": {"list"}, "show": {"show", "4"}, "hostile": {"show", "5"}, "doctor": {"doctor"},
	} {
		t.Run(name, func(t *testing.T) {
			piped := s.pipe(args...)
			testkit.Require(t, piped.code == 0, "exit %d: %s", piped.code, piped.err)
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
func TestHostileValues(t *testing.T) { bothWays(t, incident(), testHostileValues) }

func testHostileValues(t *testing.T, s *shop) {
	for _, args := range [][]string{
		{"causes"}, {"list"}, {"show", "5"}, {"show", "5", "--format", "text"}, {"show", "5", "--format", "hex"}, {"show", "\x1b[2J\x1b]0;owned\x07"},
		{"export"}, {"list", "--topic", "\x1b[31m"}, {"show", "\x1b[31m"}, {"\x1b[31m"}, {"list", "--\x1b[31m"},
		{"list", "--since", "\x1b[31m"}, {"drain", "\x1b[31m", "--broker", "\x1b[31m", "--allow", "x", "--yes"}, {"list", "--db", "\x1b[31m:x"},
		{"list", "--service", "\x1b[31m"}, {"list", "--color", "\x1b[31m"}, {"list", "--config", "\x1b[31m"},
	} {
		piped, where := s.pipe(args...), fmt.Sprint(args)
		obeyed(t, where, piped.out+piped.err)
		obeyed(t, where+" on a terminal", s.terminal(100, "", append(args, "--color", "never")...).out)
		if piped.code == 0 {
			piped = s.pipe(append(args, "--json")...)
			obeyed(t, where+" as JSON", piped.out+piped.err)
		}
	}
}

func obeyed(t *testing.T, where, text string) {
	t.Helper()
	raw := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
	testkit.Check(t, raw < 0, "%s prints at %d %q", where, raw, text)
}

// Colour is for terminals, and NO_COLOR and TERM=dumb turn it off.
func TestColour(t *testing.T) {
	s := newShop(t, incident()...)
	painted := func(out string) bool { return strings.Contains(out, "\x1b[") }
	testkit.Check(t, painted(s.terminal(80, "", "causes").out) && !painted(s.pipe("causes").out) &&
		painted(s.pipe("causes", "--color", "always").out), "colour is not for terminals, or --color always has none")
	s.env = append(s.env, "NO_COLOR=1")
	testkit.Check(t, !painted(s.terminal(80, "", "causes").out) &&
		painted(s.terminal(80, "", "causes", "--color", "always").out), "NO_COLOR is not heard, or stronger than --color")
	s.env = append(s.env, "NO_COLOR=", "TERM=dumb")
	testkit.Check(t, !painted(s.terminal(80, "", "causes").out), "a dumb terminal gets colour")
}

// leaky is a shop with one letter of secrets, as an unmasked queue of another service stored it, and rules for them.
func leaky(t *testing.T) *shop {
	s := newShop(t, letter("leak", `{"users":[{"name":"Jane Fakename"}],"card":{"number":"4111111111111111"},"password":"hunter2","n":1}`, func(l *poison.Letter) {
		l.Original.Metadata.Set("customer", "Jane Fakename")
		l.Original.Metadata.Set("Authorization", "Bearer hunter2")
		l.Failure.Reason = "password=hunter2"
		l.Failure.Description = `customer "Jane Fakename": dial postgres://ops:hunter2@db/x`
		l.Failure.Stack = "main.pay(...)\n\t/src/pay.go:1 password=hunter2\n"
		l.Failure.History = []classify.Attempt{{At: failedAt, Class: classify.ClassPermanent, Error: "card 4111111111111111 refused"}}
	}))
	rules := filepath.Join(t.TempDir(), "rules.json")
	testkit.NoError(t, os.WriteFile(rules, []byte(`{"metadata":["customer"],"patterns":["customer \"([^\"]+)\""],"payload":["$.users[*].name"]}`), 0o600))
	s.env = append(s.env, "SPILLWAY_PRIVACY="+rules)
	return s
}

// secretIn returns a secret that a person could read in text.
func secretIn(text string) string {
	for _, secret := range []string{"hunter2", "Fakename", "4111111111111111", "68756e746572", "hunter"} {
		if strings.Contains(text, secret) {
			return secret
		}
	}
	return ""
}

// Feature D14: no command prints a secret, for people or for programs.
func TestPrintsNoSecret(t *testing.T) {
	t.Run("database", func(t *testing.T) { testPrintsNoSecret(t, leaky(t)) })
	t.Run("api", func(t *testing.T) { // the server masks no names of persons, and the command does
		s := leaky(t)
		s.overAPI()
		testPrintsNoSecret(t, s)
	})
}

func testPrintsNoSecret(t *testing.T, s *shop) {
	for _, line := range []string{
		"show 1", "show leak --json", "show 1 --format text", "show 1 --format hex", "show 1 --limit 0", "list", "list --json", "causes", "causes --json",
		"audit 1", "audit 1 --json", "redrive --all --dry-run --to orders", "doctor",
	} {
		args := strings.Fields(line)
		if args[0] == "redrive" {
			args = []string{"redrive", "--dry-run", "--all"}
		}
		for _, got := range []result{s.pipe(args...), s.terminal(160, "", args...)} {
			secret := secretIn(got.out + got.err)
			testkit.Check(t, secret == "" && got.out+got.err != "", "%s: %s is readable in %+v", line, secret, got)
		}
	}
	for _, more := range [][]string{nil, {"--json"}} {
		got := s.pipe(append([]string{"redrive", "1", "--dry-run", "--edit", `{"password":"hunter3","n":2}`, "--set", "customer=John Fakename"}, more...)...)
		testkit.Check(t, secretIn(got.out) == "" && got.code == 0 && (more != nil || strings.Contains(got.out, `+   "n": 2`)), "%v: %+v", more, got)
	}
	masked := s.pipe("redrive", "1", "--dry-run", "--edit", `{"password":"hunter3"}`)
	testkit.Check(t, !strings.Contains(masked.out, "nothing changes"), "a change of what is masked: %s", masked.out)
	s.pipe("show", "1").wants(t, 0, `"name": "[redacted]"`, `"n": 1`, "tenant = blue")
	unavailable := s.pipe("list", "--db", "postgres://ops:hunter2@127.0.0.1:1/shop")
	testkit.Check(t, secretIn(unavailable.out+unavailable.err) == "" && unavailable.code != 0, "the error of a driver: %s", unavailable.err)
}

// Feature D14: the values of an edit are masked by the rules wherever a campaign or the record shows the edit.
func TestPrintsNoSecretOfAnEdit(t *testing.T) {
	s, to := leaky(t), &target{}
	s.works(to)
	began := s.pipe("redrive", "1", "--set", "customer=John Fakename", "--edit", `{"users":[{"name":"John Fakename"}],"password":"hunter3"}`,
		"--reason", "INC-7", "--yes", "--json")
	testkit.Require(t, began.code == 0 && len(to.messages()) == 1 &&
		to.messages()[0].Metadata["customer"] == "John Fakename", "exit %d: %s %s", began.code, began.out, began.err)
	id, _, _ := strings.Cut(s.pipe("campaigns").out, "\t")
	for _, line := range []string{"campaigns", "campaigns --json", "campaigns " + id, "campaigns " + id + " --json", "watch " + id + " --json", "audit", "audit --json", "show 1", "show 1 --json"} {
		for _, got := range []result{began, s.pipe(strings.Fields(line)...), s.terminal(200, "", strings.Fields(line)...)} {
			secret := secretIn(got.out + got.err)
			testkit.Check(t, secret == "" && got.out+got.err != "", "%s: %s is readable in %+v", line, secret, got)
		}
	}
	s.pipe("campaigns", id).wants(t, 0, `"set":{"customer":"[redacted]"}`)
}

// Feature D14: --unmasked shows the payload, and the record has it; without a reason or a record nothing is shown.
func TestUnmasked(t *testing.T) {
	s := leaky(t)
	for _, args := range [][]string{
		{"show", "1", "--unmasked", "--reason", "INC-7"}, {"show", "1", "--unmasked", "--reason", "INC-7", "--json"},
	} {
		s.pipe(args...).wants(t, 0, "hunter2")
	}
	record := s.pipe("audit", "--kind", "shown").out
	testkit.Check(t, strings.Count(record, "ann") == 2 && strings.Contains(record, "INC-7"), "the record: %s", record)
	testkit.Must(s.db.Exec("CREATE TRIGGER no_record BEFORE INSERT ON spillway_letter_events " +
		"BEGIN SELECT RAISE(ABORT, 'full'); END"))
	s.pipe("show", "1", "--unmasked").wants(t, 2, "--reason is empty")
	got := s.pipe("show", "1", "--unmasked", "--reason", "INC-7")
	testkit.Check(t, secretIn(got.out) == "" && got.code != 0, "without a record: %s", got.out)
}

// Promise P2: an export is whole, and TestExportImport makes the same letters of it.
func TestExportIsWhole(t *testing.T) {
	leaky(t).pipe("export").wants(t, 0, "Jane Fakename", "4111111111111111", "hunter2")
}

// A file of rules that is wrong is an error that names the rule.
func TestPrivacyFile(t *testing.T) {
	s := newShop(t)
	for text, want := range map[string]string{`{"payload":["users"]}`: `Rules.Payload[0]`, `{"payloads":[]}`: "unknown field", `{`: "redrive help privacy"} {
		path := filepath.Join(t.TempDir(), "rules.json")
		testkit.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		s.pipe("list", "--privacy", path).wants(t, 2, want)
	}
	s.pipe("list", "--privacy", "/nowhere").wants(t, 2)
}
