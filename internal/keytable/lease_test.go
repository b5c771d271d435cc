package keytable

import (
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature I3: by the database's clock, which knows only milliseconds, a lease lasts as long as its owner thinks, or
// longer.
func TestLeaseDuration(t *testing.T) {
	for d, want := range map[time.Duration]int64{time.Second: 1001, time.Second + 1: 1002, time.Second - 1: 1001, 290 * 365 * 24 * time.Hour: 9145440000001} {
		if got := millis(d); got != want {
			t.Errorf("%s: got %d, want %d", d, got, want)
		}
	}
}

// Feature I3: PostgreSQL's statements number their parameters from 1 on.
func TestLeaseNumbered(t *testing.T) {
	postgres := leasings[database.Postgres]
	for _, s := range []string{postgres.enter, postgres.complete, postgres.release} {
		testkit.Check(t, !strings.Contains(s, "?") && strings.Count(s, "$1") == 1 && !strings.Contains(s, "$0"),
			"%v", s)
	}
}
