package delayed

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// BenchmarkPutters is how many messages a second callers put that put at the same time, with and without what they share. Rounds of
// both alternate.
func BenchmarkPutters(b *testing.B) {
	for _, d := range databases {
		b.Run(d.name, func(b *testing.B) {
			address := d.create(b)
			for _, callers := range []int{1, 16, 64} {
				b.Run(fmt.Sprint(callers), func(b *testing.B) {
					db := d.open(b, address)
					db.SetMaxOpenConns(64)
					db.SetMaxIdleConns(64)
					stores := map[string]*Store{"apart": on(b, db), "together": on(b, db)}
					stores["apart"].batcher = nil
					took := map[string]time.Duration{}
					const each = 400
					for b.Loop() {
						for _, name := range []string{"apart", "together"} {
							begun := time.Now()
							var all sync.WaitGroup
							for range callers {
								all.Go(func() {
									for range each / callers {
										put(b, stores[name], "orders", newMessage("id"), time.Hour)
									}
								})
							}
							all.Wait()
							took[name] += time.Since(begun)
						}
					}
					for name, d := range took {
						b.ReportMetric(float64(b.N*(each/callers)*callers)/d.Seconds(), name+"/s")
					}
				})
			}
		})
	}
}
