package campaigns_test

import (
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V14: a policy starts for its letters behind however many larger causes of topics that it may not publish to.
func TestPolicy_behindManyCauses(t *testing.T) {
	p := withPolicies(t, fixture.Postgres, standing())
	var all []*message.Message
	for i := range letters.MaxListed + 1 {
		word := string([]rune{rune('a' + i/26), rune('a' + i%26)})
		for n := range 2 {
			all = append(all, fixture.Letter(fmt.Sprint("other-", i, "-", n), "{}", fixture.From("elsewhere"), func(l *poison.Letter) {
				l.Failure.Description = "no customer " + word
			}))
		}
	}
	fixture.Publish(t, p.store, "orders.dlq", all...)
	fixture.Publish(t, p.store, "orders.dlq", fixture.Letter("id-1", "{}"))
	found := p.look()
	testkit.Require(t, len(found) == 1 && found[0].Selected == 1, "%d campaigns: %+v", len(found), found)
}
