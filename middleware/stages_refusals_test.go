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
				if r.tooLong("stage", refusalOf("billing", message.NewMessage(fmt.Sprint(id), nil))) {
					first++
				}
			}
			time.Sleep(30 * time.Second)
		}
		if first != 1 {
			t.Errorf("%d were set aside in six minutes", first)
		}
		for id := range 3 * maxRefusals {
			r.tooLong("stage", refusalOf("shipping", message.NewMessage(fmt.Sprint(id), nil)))
		}
		if len(r.messages) > maxRefusals {
			t.Errorf("%d are remembered", len(r.messages))
		}
	})
}

// A message that was refused long ago is a new one.
func TestStageRefusalIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		of := refusalOf("billing", message.NewMessage("1", nil))
		for range 5 {
			if r.tooLong("stage", of) {
				t.Fatal("set aside")
			}
			time.Sleep(24 * time.Hour)
		}
		if refusalOf("a", &message.Message{Payload: []byte("1")}) == refusalOf("a", &message.Message{Payload: []byte("2")}) {
			t.Error("messages without an id are one")
		}
	})
}
