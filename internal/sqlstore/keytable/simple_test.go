package keytable

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// The values of a statement, whatever they hold, are these and nothing else.
var (
	anyPostgres = regexp.MustCompile(`^BEGIN ISOLATION LEVEL READ COMMITTED; EXECUTE spillway_[0-9a-f]{12}\('[0-9a-f]*','[0-9a-f]*',-?[0-9]+,(NULL|'[0-9a-f]*'),(NULL|-?[0-9]+),[0-9]+\)$`)
	anyCommit   = regexp.MustCompile(`^SAVEPOINT spillway; SELECT set_config\('role', T, true\), set_config\('search_path', T, true\); SELECT 1/count\(\*\) FROM spillway_keys WHERE consumer = T AND id = T AND xmin = \(txid_current\(\) & 4294967295\)::text::xid; ` +
		`(WITH recorded AS \(UPDATE spillway_keys SET outputs = decode\('[0-9a-f]+','hex'\) WHERE consumer = T AND id = T RETURNING 1\) SELECT 1/count\(\*\) FROM recorded; )?COMMIT$`)
	text     = regexp.MustCompile(`convert_from\(decode\('[0-9a-f]*','hex'\),'UTF8'\)`)
	anyMySQL = regexp.MustCompile(`^INSERT INTO spillway_keys \(consumer, id, applied_at, fingerprint, version, nonce\) VALUES \(x'[0-9a-f]*',x'[0-9a-f]*',-?[0-9]+,(NULL|x'[0-9a-f]*'),(NULL|-?[0-9]+),[0-9]+\)$`)
)

// Bad input: no key, fingerprint or record of outputs leaves the literal that it stands in.
func FuzzSimple(f *testing.F) {
	for _, hostile := range []string{"", "a", "'", `\'`, `\`, "''; DROP TABLE spillway_keys; --", "$1", "?", "','hex'),'UTF8')); COMMIT; --", "\x00", "\xff\xfe",
		"\u02bc", "/*", "$$", "x'", "E'\\''", "%s", strings.Repeat("'", 300)} {
		f.Add(hostile, "id", []byte(hostile), int64(-1), true)
		f.Add("consumer", hostile, []byte(nil), int64(1)<<62, false)
	}
	f.Fuzz(func(t *testing.T, consumer, id string, bytes []byte, version int64, versioned bool) {
		for _, row := range []Row{
			NewRow(consumer, id, bytes, version, versioned),
			{Consumer: consumer, ID: id, Fingerprint: bytes, Version: version, Versioned: versioned, At: version}, // not even as a column
		} {
			begin, enter := BeginPostgres(row, false, false), EnterMySQL(row)
			commit := text.ReplaceAllString(CommitPostgres(row, bytes, true, &Settings{consumer, id}), "T")
			testkit.Check(t, anyPostgres.MatchString(begin), "%q", begin)
			testkit.Check(t, anyCommit.MatchString(commit), "%q", commit)
			testkit.Check(t, anyMySQL.MatchString(enter), "%q", enter)
		}
	})
}

// Feature I3: by the database's clock, which knows only milliseconds, a lease lasts as long as its owner thinks, or
// longer.
func TestLeaseDuration(t *testing.T) {
	for d, want := range map[time.Duration]int64{time.Second: 1001, time.Second + 1: 1002, time.Second - 1: 1001, 290 * 365 * 24 * time.Hour: 9145440000001} {
		testkit.Equal(t, d.String(), millis(d), want)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
