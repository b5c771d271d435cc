package prom_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

// Feature O1: while the database hangs each scrape ends and has all other series. One statement hangs.
func TestScrapesOfADatabaseThatHangs(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		one := instances(t, d, address, 1, time.Millisecond, 2*time.Second)[0]
		one.letter(t, "1", "boom")
		testkit.Eventually(t, "the letter", func() bool { return value(t, one.scrape(t), "spillway_letters_causes") == 1 })
		release := make(chan struct{})
		hung := make(chan struct{}, 100)
		one.with(func(statement string) error {
			if strings.Contains(statement, question) {
				hung <- struct{}{}
				<-release
			}
			return nil
		})
		testkit.Eventually(t, "a scrape that hangs", func() bool { return value(t, one.scrape(t), "spillway_source_up") == 0 })
		var scrapes sync.WaitGroup
		for range 20 {
			scrapes.Go(func() {
				for range 5 {
					families := one.scrape(t)
					for name, want := range map[string]float64{
						"spillway_source_up": 0, "spillway_ok": 1, "spillway_letters_causes": 1,
					} {
						testkit.Equal(t, name, value(t, families, name), want)
					}
				}
			})
		}
		scrapes.Wait()
		testkit.Check(t, len(hung) == 1, "%d statements hang", len(hung))
		one.with(nil)
		close(release)
		testkit.Eventually(t, "the database answers again", func() bool { return value(t, one.scrape(t), "spillway_source_up") == 1 })
	})
}

// Feature O1: a driver that panics fails a scrape of its source, and no other.
func TestScrapesOfADriverThatPanics(t *testing.T) {
	db := databases.SQLite
	one := instances(t, db, db.Create(t), 1, time.Millisecond, time.Minute)[0]
	one.with(func(statement string) error {
		if strings.Contains(statement, question) {
			panic("driver")
		}
		return nil
	})
	families := one.scrape(t)
	testkit.Equal(t, "up", value(t, families, "spillway_source_up"), 0)
	testkit.Equal(t, "ok", value(t, families, "spillway_ok"), 1)
	testkit.Check(t, families["spillway_letters"] == nil, "a store that never answered has numbers")
	one.with(nil)
	testkit.Eventually(t, "the driver works again", func() bool { return value(t, one.scrape(t), "spillway_source_up") == 1 })
}
