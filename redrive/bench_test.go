package redrive_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/redrive"
)

// Single letters, each durable before the next, and batches of a hundred.
func BenchmarkStore_Publish(b *testing.B) {
	for _, size := range []int{1, 100} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			store, n := newStore(b), 0
			b.ReportAllocs()
			for b.Loop() {
				batch := make([]*message.Message, size)
				for i := range batch {
					n++
					batch[i] = letter(strconv.Itoa(n), "{}")
				}
				publish(b, store, "orders.dlq", batch...)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "letters/s")
		})
	}
}

func BenchmarkStore_Drain(b *testing.B) {
	nowhere := publisherFunc(func(string, ...*message.Message) error { return nil })
	for _, concurrency := range []int{1, 4} {
		b.Run(strconv.Itoa(concurrency), func(b *testing.B) {
			store := newStore(b)
			for start := 0; start < b.N; start += 1000 {
				var batch []*message.Message
				for i := start; i < min(start+1000, b.N); i++ {
					batch = append(batch, letter(strconv.Itoa(i), "{}"))
				}
				publish(b, store, "orders.dlq", batch...)
			}
			b.ReportAllocs()
			b.ResetTimer()
			report, err := redrive.Drain(context.Background(), store, nowhere, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Concurrency: concurrency}})
			if err != nil || report.Redriven != b.N {
				b.Fatalf("%+v, %v", report, err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "letters/s")
		})
	}
}
