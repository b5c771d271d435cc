package redrive_test

import (
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/redrive"
)

// Promise P6: services that have one table each see, lease and bring back their own letters only, also where topic,
// handler, id and payload are the same.
func TestStore_services(t *testing.T) { onEach(t, testStore_services) }

func testStore_services(t *testing.T, on database) {
	open := on.create(t)
	of := func(service string) *redrive.Store {
		store, err := redrive.NewStore(redrive.StoreConfig{DB: open(), Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	services := map[string]*redrive.Store{"": of(""), "shop": of("shop"), "kafka-eu\x00\xff": of("kafka-eu\x00\xff")}
	for _, store := range services {
		publish(t, store, "orders.dlq", letter("1", "a"), letter("2", "b"))
	}
	for service, store := range services {
		out := &outbox{}
		if groups, err := store.Groups(t.Context(), redrive.Filter{}); err != nil || len(groups) != 1 || groups[0].Count != 2 {
			t.Errorf("%q: %+v, %v", service, groups, err)
		}
		if entries := list(t, store, redrive.Filter{}); len(entries) != 2 || entries[0].Seen != 1 {
			t.Errorf("%q: %+v", service, entries)
		}
		taken, err := store.Take(t.Context(), redrive.Filter{}, time.Hour, 10)
		if err != nil || len(taken) != 2 {
			t.Errorf("%q: %d taken, %v", service, len(taken), err)
		}
		if err := store.Release(t.Context(), taken...); err != nil {
			t.Error(err)
		}
		if r := drain(t, store, out, orders); r.Redriven != 2 || len(out.all()) != 2 {
			t.Errorf("%q: %+v", service, r)
		}
		wantCount(t, store, redrive.Filter{}, 0)
	}
	if _, err := redrive.NewStore(redrive.StoreConfig{DB: open(), Service: strings.Repeat("x", 256)}); err == nil || !strings.Contains(err.Error(), "StoreConfig.Service") {
		t.Error(err)
	}
}
