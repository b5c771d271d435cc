package letters_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Promises P1, P2: the settings of the connections do not matter.
func TestStore_mysqlSettings(t *testing.T) {
	fixture.OnMySQLSettings(t, func(t *testing.T, on fixture.Database) {
		testStore_hostileText(t, on)
		testStore_takeMarkRelease(t, on)
		testStore_arrivesAgain(t, on)
	})
}

// Feature D6: a letter that is larger than the server takes is refused as too large, not as a lost connection, and what
// is just small enough comes back.
func TestStore_mysqlTooLarge(t *testing.T) {
	for _, settings := range []string{"parseTime=true", "interpolateParams=true", "maxAllowedPacket=0"} {
		t.Run(settings, func(t *testing.T) {
			db := mysqltest.Open(t, mysqltest.With(mysqltest.Database(t), settings))
			store := storeOn(t, db)
			var packet int
			testkit.NoError(t, db.QueryRow(`SELECT @@max_allowed_packet`).Scan(&packet))
			for _, size := range []int{packet - 4<<10, packet + 1, 3 * packet} {
				for _, filling := range []byte{'x', 0} {
					err := store.Publish("orders.dlq", message.NewMessage(fmt.Sprint(size, filling), bytes.Repeat([]byte{filling}, size)))
					if !errors.Is(err, classify.ErrTooLarge) {
						t.Errorf("%d: %v", size, err)
					}
				}
			}
			half := &message.Message{UUID: "half", Payload: bytes.Repeat([]byte{0}, packet/2+1<<20)} // twice that when escaped
			publish(t, store, "orders.dlq", half)
			whole := &message.Message{UUID: "whole", Payload: bytes.Repeat([]byte{'x'}, packet-12<<10)}
			publish(t, store, "orders.dlq", whole)
			if got := list(t, store, letters.Filter{IDs: []string{"whole"}}); len(got) != 1 || !bytes.Equal(got[0].Letter.Original.Payload, whole.Payload) {
				t.Error("the largest letter is not the same")
			}
		})
	}
}

// Feature V9: causes that differ at the end of long names are different causes, although MySQL sorts by beginnings.
func TestStore_mysqlGroupsOfLongNames(t *testing.T) {
	store := mysqlDatabase.NewStore(t)
	for i := range 200 {
		end := string(rune('a' + i%2))
		publish(t, store, "orders.dlq", letter(fmt.Sprint(i), "{}", func(l *poison.Letter) {
			l.Origin.Handler = strings.Repeat("x", 3000) + end
			l.Failure.Reason, l.Failure.Type = strings.Repeat("y", 2000)+end, strings.Repeat("z", 2000)+end
		}))
	}
	groups, err := store.Groups(t.Context(), letters.Filter{})
	if err != nil || len(groups) != 2 || groups[0].Count != 100 || groups[1].Count != 100 || groups[0].Handler == groups[1].Handler {
		t.Errorf("%d groups, %v", len(groups), err)
	}
}
