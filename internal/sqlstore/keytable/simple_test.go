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
var anyMySQL = regexp.MustCompile(`^INSERT INTO spillway_keys \(consumer, id, applied_at, fingerprint, version, nonce\) VALUES \(x'[0-9a-f]*',x'[0-9a-f]*',-?[0-9]+,(NULL|x'[0-9a-f]*'),(NULL|-?[0-9]+),[0-9]+\)$`)

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
			enter := enterMySQL(row)
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
