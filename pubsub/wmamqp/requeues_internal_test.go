package wmamqp

import (
	"fmt"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// What a queue does not count, as from RabbitMQ 4.3 on, is not taken from its count. And what another process did to
// the message in between still counts.
func TestGivenBackAsTheQueueCounts(t *testing.T) {
	for name, row := range map[string]struct{ counts, want []int }{
		"counted":                {[]int{0, 1, 2, 3}, []int{0, 1, 2, 3}},
		"not counted":            {[]int{0, 0, 0, 0}, []int{0, 0, 0, 0}},
		"crashes in between":     {[]int{0, 1, 4, 5}, []int{0, 1, 2, 3}},
		"crashes, nacks are not": {[]int{0, 0, 2, 2}, []int{0, 0, 1, 1}},
		"begins late":            {[]int{7, 8, 8, 9}, []int{0, 1, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRequeues()
			var got []int
			for i, count := range row.counts {
				d := &amqp091.Delivery{Redelivered: i > 0 || count > 0, Headers: amqp091.Table{deliveryCount: int64(count)}}
				got = append(got, g.times("orders", "m", d))
				g.add("orders", "m", d)
			}
			testkit.Check(t, fmt.Sprint(got) == fmt.Sprint(row.want), "got %v, want %v", got, row.want)
		})
	}
}
