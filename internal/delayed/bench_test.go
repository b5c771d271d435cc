package delayed

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// BenchmarkRelay is how many messages a second one relay moves to a publisher that does nothing.
func BenchmarkRelay(b *testing.B) {
	for _, d := range databases {
		b.Run(d.name, func(b *testing.B) {
			const n = 5000
			s := d.newStore(b, d.create(b))
			var moving time.Duration
			moved := 0
			for b.Loop() {
				b.StopTimer()
				fill(b, s, n, 0)
				b.StartTimer()
				begun, left := time.Now(), make(chan struct{})
				count := 0
				r := start(b, s, sinkFunc(func(messages ...*message.Message) error {
					if count += len(messages); count == n {
						close(left)
					}
					return nil
				}), RelayConfig{})
				<-left
				r.stop()
				moving += time.Since(begun)
				moved += n
			}
			b.ReportMetric(float64(moved)/moving.Seconds(), "moves/s")
		})
	}
}

// BenchmarkPut is what one Put costs, one after another.
func BenchmarkPut(b *testing.B) {
	for _, d := range databases {
		b.Run(d.name, func(b *testing.B) {
			s := d.newStore(b, d.create(b))
			for b.Loop() {
				put(b, s, "orders", newMessage("id"), time.Hour)
			}
		})
	}
}
