package letters_test

import (
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

// Promise P6: services that have one table each see, lease and bring back their own letters only, also where topic,
// handler, id and payload are the same.
func TestStore_services(t *testing.T) { onEach(t, testStore_services) }

func testStore_services(t *testing.T, on fixture.Database) {
	open := on.Create(t)
	of := func(service string) *letters.Store {
		store := testkit.Must(letters.NewStore(t.Context(), open(), settings.Shared{Service: service}))
		return store
	}
	services := map[string]*letters.Store{"shop": of("shop"), "kafka-eu": of("kafka-eu")}
	if on.Name == sqliteFile.Name {
		services[""] = of("")
	}
	for _, store := range services {
		publish(t, store, "orders.dlq", letter("1", "a"), letter("2", "b"))
	}
	for service, store := range services {
		if groups, err := store.Groups(t.Context(), letters.Filter{}); err != nil || len(groups) != 1 || groups[0].Count != 2 {
			t.Errorf("%q: %+v, %v", service, groups, err)
		}
		found := list(t, store, letters.Filter{})
		testkit.Check(t, len(found) == 2 && found[0].Seen == 1, "%q: %+v", service, found)
		taken, err := fixture.Take(t.Context(), store, letters.Filter{}, time.Hour, 10)
		testkit.Check(t, err == nil && len(taken) == 2, "%q: %d taken, %v", service, len(taken), err)
		for _, l := range taken {
			testkit.NoError(t, fixture.Mark(t.Context(), store, l, letters.StatusRedriven, letters.Act{}))
		}
		wantCount(t, store, letters.Filter{}, 0)
	}
	for _, wrong := range []string{strings.Repeat("x", 101), "shop/eu", "a b", "é"} {
		_, err := letters.NewStore(t.Context(), open(), settings.Shared{Service: wrong})
		testkit.Check(t, err != nil && strings.Contains(err.Error(), "Service"), "%q: %v", wrong, err)
	}
	_, err := letters.NewStore(t.Context(), open(), settings.Shared{})
	testkit.Check(t, (err == nil) == (on.Name == sqliteFile.Name), "no service: %v", err)
}
