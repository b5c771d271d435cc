package keytable

import (
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature I3: by the database's clock, which knows only milliseconds, a lease lasts as long as its owner thinks, or
// longer.
func TestLeaseDuration(t *testing.T) {
	for d, want := range map[time.Duration]int64{time.Second: 1001, time.Second + 1: 1002, time.Second - 1: 1001, 290 * 365 * 24 * time.Hour: 9145440000001} {
		testkit.Equal(t, d.String(), millis(d), want)
	}
}
