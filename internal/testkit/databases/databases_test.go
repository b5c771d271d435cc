package databases_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testkit/databases"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each test has a database of its own, and two pools at one address see the same.
func TestEach(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		one, same, other := d.Open(t, address), d.Open(t, address), d.New(t)
		if _, err := one.Exec(`CREATE TABLE things (n INT)`); err != nil {
			t.Fatal(err)
		}
		if _, err := same.Exec(`INSERT INTO things VALUES (1)`); err != nil {
			t.Error(err)
		}
		if _, err := other.Exec(`CREATE TABLE things (n INT)`); err != nil {
			t.Error(err)
		}
	})
}
