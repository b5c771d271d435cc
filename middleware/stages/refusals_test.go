package stages

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/recent"
)

// One stage that takes nothing, for many messages: one is set aside in five minutes.
func TestStageRefusesMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := func(id int) recent.Message {
			return recent.Of(chain.Keep(message.NewMessage(fmt.Sprint(id), nil)))
		}
		r, first := newRefusals(), 0
		for range 12 {
			for id := range 900 {
				if r.tooLong("stage", refused(id)) {
					first++
				}
			}
			time.Sleep(30 * time.Second)
		}
		if first != 1 {
			t.Errorf("%d were set aside in six minutes", first)
		}
	})
}
