package connect

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")) // of sarama
}

// A URL becomes what its driver takes.
func TestURLs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a b%.db")
	testkit.NoError(t, os.WriteFile(file, nil, 0o600))
	for address, want := range map[string]string{
		"postgres://u:p@h:1/d":                                  "pgx postgres://u:p@h:1/d?default_query_exec_mode=exec",
		"postgres://h/d?sslmode=disable":                        "pgx postgres://h/d?sslmode=disable&default_query_exec_mode=exec",
		"postgres://h/d?default_query_exec_mode=cache_describe": "pgx postgres://h/d?default_query_exec_mode=cache_describe",
		"mysql://u:p%40%2F@h/d":                                 "mysql u:p@/@tcp(h:3306)/d",
		"mariadb://u@h:7/d?tls=true":                            "mysql u@tcp(h:7)/d?tls=true",
		"sqlite://" + pathOf(file):                              "sqlite file:" + pathOf(file) + "?_pragma=busy_timeout(10000)&mode=rw",
		"sqlite:" + pathOf(file) + "?mode=ro":                   "sqlite file:" + pathOf(file) + "?_pragma=busy_timeout(10000)&mode=rw&mode=ro",
	} {
		driver, dsn, err := dsnOf(address)
		got := driver + " " + dsn
		testkit.Check(t, err == nil && got == want, "%s: %s, %v; want %s", address, got, err, want)
	}
	for address, says := range map[string]string{
		"": "SPILLWAY_DB", "nothing": "no URL", "redis://h": `scheme "redis"`, "mysql://h": "no database name", "mysql://u:p%zz@h/d": "%40",
		"sqlite:///nowhere/x": "cannot be opened", "sqlite://" + t.TempDir(): "folder", "mysql://u:secret@h/d?timeout=x": "duration",
	} {
		_, _, err := dsnOf(address)
		testkit.Check(t, err != nil && strings.Contains(err.Error(), says) && !strings.Contains(err.Error(), "secret"),
			"%s: %v, want %q", address, err, says)
	}
}

func pathOf(file string) string { return strings.NewReplacer("%", "%25", " ", "%20").Replace(file) }

// An error, and what is shown of an address, never has the password.
func TestPasswordsAreNotShown(t *testing.T) {
	for _, address := range []string{
		"postgres://u:hunter%40two@127.0.0.1:1/d?connect_timeout=1", "mysql://u:hunter%40two@127.0.0.1:1/d", "mysql://u:hunter%40two@h/d?x=%zz", "postgres://u:hunter%40two@h:x/d",
	} {
		_, err := Database(t.Context(), address)
		testkit.Check(t, err != nil && !strings.Contains(err.Error(), "hunter"), "%s: %v", address, err)
		if shown := Shown(address); strings.Contains(shown, "hunter") {
			t.Errorf("shown as %s", shown)
		}
	}
	for _, address := range []string{"kafka://u:hunter@127.0.0.1:1", "amqp://u:hunter@127.0.0.1:1/", "redis://u:hunter@h", "kafka://u:hunter@"} {
		_, err := Open(t.Context(), address, nil, nil)
		testkit.Check(t, err != nil && !strings.Contains(err.Error(), "hunter"), "%s: %v", address, err)
	}
	if shown := Shown("kafka://u:hunter@a:1,b:2"); strings.Contains(shown, "hunter") || !strings.Contains(shown, "a:1,b:2") {
		t.Errorf("shown as %s", shown)
	}
}

// A part of a URL that is not understood is refused, before a password is sent.
func TestBrokerURLs(t *testing.T) {
	for address, says := range map[string]string{
		"": "SPILLWAY_BROKER", "kafka://h?tls=yes": "give true or false", "kafka://h?tsl=true": `"tsl"`, "kafka://h?sasl=plain": "no user", "kafka://u:p@h?sasl=gssapi": "scram-sha-512",
		"kafka://h?tls=false&ca=x": "leave the one", "kafka://h?cert=x": "both files", "kafka://h?ca=/nowhere/x": "ca: open", "kafka://u:%zz@h": "escape",
		"kafka://h?tls=true&tls=false": "once",
		"kafka://a,,b":                 "a host is missing", "kafka://h?%zz": "query", "pulsar://h": "scheme is unknown",
	} {
		_, err := Open(t.Context(), address, nil, nil)
		testkit.Check(t, err != nil && strings.Contains(err.Error(), says) && strings.Contains(err.Error(), "--broker"),
			"%s: %v, want %q", address, err, says)
	}
}

// Looking makes no table, and no upgrade: a table of another release is an error that says what to do.
func TestVersions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	db := testkit.Must(sql.Open("sqlite", "file:"+file))
	defer db.Close()
	testkit.Says(t, Require(t.Context(), db, "letters"), "not the database of a service")
	testkit.Must(letters.NewStore(t.Context(), db, settings.Shared{}))
	testkit.NoError(t, Require(t.Context(), db, "letters"))
	for state, change := range map[string]string{
		"newer":   `INSERT INTO spillway_schema VALUES ('letters', 99, 0)`,
		"older":   `DELETE FROM spillway_schema WHERE component = 'letters' AND version > 1`,
		"missing": `DELETE FROM spillway_schema WHERE component = 'letters'`,
	} {
		tx, err := db.Begin()
		if err == nil {
			_, err = tx.Exec(change)
		}
		if err == nil {
			err = tx.Commit()
		}
		testkit.NoError(t, err)
		versions := testkit.Must(Versions(t.Context(), db))
		for _, v := range versions {
			testkit.Check(t, v.Component != "letters" || v.State() == state, "%+v is %s, want %s", v, v.State(), state)
		}
		if err := Require(t.Context(), db, "letters"); err == nil {
			t.Errorf("%s is accepted", state)
		}
		if _, err := db.Exec(`DELETE FROM spillway_schema WHERE component = 'letters'; INSERT INTO spillway_schema VALUES ('letters', 1, 0), ('letters', 2, 0)`); err != nil {
			t.Fatal(err)
		}
	}
}

// Every component that this release makes is known, on each kind of database.
func TestNewest(t *testing.T) {
	for _, kind := range []string{"postgres", "mysql", "sqlite"} {
		newest, err := newestOf(kind)
		testkit.Check(t, err == nil && newest["letters"] >= 2 && newest["keys"] >= 2 && len(newest) >= 4,
			"%s: %v, %v", kind, newest, err)
	}
}
