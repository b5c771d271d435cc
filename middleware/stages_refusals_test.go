package middleware

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// One stage that takes nothing, for many messages.
func TestStageRefusesMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		first := 0
		for range 12 {
			for id := range 900 {
				if r.tooLong("stage", refusalOf("billing", message.NewMessage(fmt.Sprint(id), nil)), false) {
					first++
				}
			}
			time.Sleep(30 * time.Second)
		}
		if first != 1 {
			t.Errorf("%d were set aside in six minutes", first)
		}
		for id := range 3 * maxRefusals {
			r.tooLong("stage", refusalOf("shipping", message.NewMessage(fmt.Sprint(id), nil)), false)
		}
		if len(r.messages) > maxRefusals {
			t.Errorf("%d are remembered", len(r.messages))
		}
	})
}

// Decision 13: an outage sets nothing aside, however long it lasts. A message that is refused while others are taken is.
func TestStageAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		of := refusalOf("billing", message.NewMessage("1", nil))
		for range 240 {
			if r.tooLong("stage", of, true) {
				t.Fatal("set aside in an outage")
			}
			time.Sleep(30 * time.Second)
		}
		r.taken("stage")
		if !r.tooLong("stage", of, true) {
			t.Error("refused for two hours while others were taken, and not set aside")
		}
	})
}

// A message that was refused long ago is a new one.
func TestStageRefusalIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		of := refusalOf("billing", message.NewMessage("1", nil))
		for range 5 {
			if r.tooLong("stage", of, false) {
				t.Fatal("set aside")
			}
			time.Sleep(24 * time.Hour)
		}
		if refusalOf("a", &message.Message{Payload: []byte("1")}) == refusalOf("a", &message.Message{Payload: []byte("2")}) {
			t.Error("messages without an id are one")
		}
	})
}
