package letters_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// BenchmarkPublishers is how many letters a second callers publish that publish at the same time, with and without what
// they share. Rounds of both alternate.
func BenchmarkPublishers(b *testing.B) {
	for _, on := range []fixture.Database{sqliteFile, postgresSchema, mysqlDatabase} {
		b.Run(on.Name, func(b *testing.B) {
			open := on.Create(b)
			db := open()
			db.SetMaxOpenConns(64)
			db.SetMaxIdleConns(64)
			var ids atomic.Int64
			for _, callers := range []int{1, 16, 64} {
				b.Run(fmt.Sprint(callers), func(b *testing.B) {
					stores := map[string]*letters.Store{"apart": storeOn(b, db), "together": storeOn(b, db)}
					stores["apart"].Apart()
					took := map[string]time.Duration{}
					const each = 400
					for b.Loop() {
						for _, name := range []string{"apart", "together"} {
							publish(b, stores[name], "orders.dlq", letter(fmt.Sprint("first-", ids.Add(1)), "{}")) // of its cause
							begun := time.Now()
							var all sync.WaitGroup
							for range callers {
								all.Go(func() {
									for range each / callers {
										publish(b, stores[name], "orders.dlq", letter(fmt.Sprint(ids.Add(1)), `{"order": 7, "amount": 12.5}`))
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
