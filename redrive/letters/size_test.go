package letters_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature D6: on SQLite, too, a letter that is larger than the database takes is refused as too large.
func TestStore_sqliteTooLarge(t *testing.T) {
	db := sqliteFile.Create(t)()
	db.SetMaxOpenConns(1)
	store := storeOn(t, db)
	conn, err := db.Conn(t.Context())
	testkit.NoError(t, err)
	const limitLength = 0 // SQLITE_LIMIT_LENGTH
	testkit.Must(sqlite.Limit(conn, limitLength, 100_000))
	testkit.NoError(t, conn.Close())
	err = store.Publish("orders.dlq", letter("1", strings.Repeat("x", 200_000)))
	testkit.Check(t, errors.Is(err, classify.ErrTooLarge) && (*classify.Classifier)(nil).IsTooLarge(err), "%v", err)
	publish(t, store, "orders.dlq", letter("1", "x"))
}

// Promises P1, P2: the settings of the connections do not matter.
func TestStore_mysqlSettings(t *testing.T) {
	fixture.OnMySQLSettings(t, func(t *testing.T, on fixture.Database) {
		testStore_hostileText(t, on)
		testStore_takeMarkRelease(t, on)
		testStore_arrivesAgain(t, on)
	})
}

// Feature D6: more than the server takes is refused as too large, not as a lost connection. Just less comes back.
func TestStore_mysqlTooLarge(t *testing.T) {
	for _, settings := range []string{"interpolateParams=true", "maxAllowedPacket=0"} {
		t.Run(settings, func(t *testing.T) {
			db := mysqltest.Open(t, mysqltest.With(mysqltest.Database(t), settings))
			store := storeOn(t, db)
			var packet int
			testkit.NoError(t, db.QueryRow(`SELECT @@max_allowed_packet`).Scan(&packet))
			for _, size := range []int{packet - 4<<10, packet + 1} {
				for _, filling := range []byte{'x', 0} {
					err := store.Publish("orders.dlq", message.NewMessage(fmt.Sprint(size, filling), bytes.Repeat([]byte{filling}, size)))
					testkit.Check(t, errors.Is(err, classify.ErrTooLarge), "%d: %v", size, err)
				}
			}
			half := &message.Message{UUID: "half", Payload: bytes.Repeat([]byte{0}, packet/2+1<<20)} // twice that when escaped
			publish(t, store, "orders.dlq", half)
			whole := &message.Message{UUID: "whole", Payload: bytes.Repeat([]byte{'x'}, packet-12<<10)}
			publish(t, store, "orders.dlq", whole)
			got := list(t, store, letters.Filter{IDs: []string{"whole"}})
			testkit.Check(t, len(got) == 1 && bytes.Equal(got[0].Letter.Original.Payload, whole.Payload),
				"the largest letter is not the same")
		})
	}
}

// Feature V9: causes that differ at the end of long names are different causes, although MySQL sorts by beginnings.
func TestStore_mysqlGroupsOfLongNames(t *testing.T) {
	store := mysqlDatabase.NewStore(t)
	for i := range 20 {
		end := string(rune('a' + i%2))
		publish(t, store, "orders.dlq", letter(fmt.Sprint(i), "{}", func(l *poison.Letter) {
			l.Origin.Handler = strings.Repeat("x", 3000) + end
			l.Failure.Reason, l.Failure.Type = strings.Repeat("y", 2000)+end, strings.Repeat("z", 2000)+end
		}))
	}
	groups, err := store.Groups(t.Context(), letters.Filter{})
	testkit.Check(t, err == nil && len(groups) == 2 && groups[0].Count == 10 && groups[1].Count == 10 &&
		groups[0].Handler != groups[1].Handler, "%d groups, %v", len(groups), err)
}

// Promise P6: services that share a table see, lease and bring back their own letters only.
func TestStore_services(t *testing.T) { onEach(t, testStore_services) }

func testStore_services(t *testing.T, on fixture.Database) {
	open := on.Create(t)
	of := func(service string) *letters.Store {
		return testkit.Must(letters.NewStore(t.Context(), open(), letters.Config{Service: service}))
	}
	services := map[string]*letters.Store{"shop": of("shop"), "kafka-eu": of("kafka-eu")}
	if on.Name == sqliteFile.Name {
		services[""] = of("")
	}
	for _, store := range services {
		publish(t, store, "orders.dlq", letter("1", "a"), letter("2", "b"))
	}
	for service, store := range services {
		groups, err := store.Groups(t.Context(), letters.Filter{})
		testkit.Check(t, err == nil && len(groups) == 1 && groups[0].Count == 2, "%q: %+v, %v", service, groups, err)
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
		_, err := letters.NewStore(t.Context(), open(), letters.Config{Service: wrong})
		testkit.Check(t, err != nil && strings.Contains(err.Error(), "Service"), "%q: %v", wrong, err)
	}
	_, err := letters.NewStore(t.Context(), open(), letters.Config{})
	testkit.Check(t, (err == nil) == (on.Name == sqliteFile.Name), "no service: %v", err)
}
