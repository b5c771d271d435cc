package campaigns

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// A fresh worker makes up for nothing: before it, there may have been none. Others make up for maxLate at most.
func TestSchedule_fresh(t *testing.T) {
	k, s := schedule{next: 1_000}.take(5_000_000, 10, 10_000, true)
	testkit.Check(t, k.quick == 0 && k.due(0) == 0 && s.late == 0 && s.next == 5_000_000+10*100_000, "%+v %+v", k, s)
	k, s = schedule{next: 4_000_000}.take(5_000_000, 200, 10_000, false)
	testkit.Check(t, k.quick == 109 && s.late <= 9_091 && k.due(109)-k.due(108) <= 92*time.Millisecond &&
		k.due(150)-k.due(149) == 100*time.Millisecond, "%+v %+v", k, s)
	_, s = schedule{next: 1_000_000}.take(100_000_000, 1, 10_000, false)
	testkit.Check(t, s.late > 0 && s.late <= maxLate.Microseconds(), "%+v", s)
}

// Feature V7: two workers that stall publish at the rate over the whole time, and within a second at 1.1 of it.
func TestTurns(t *testing.T) {
	random := testkit.Random(t)
	for range testkit.Campaign(t, 6) {
		rate := []int64{20_000, 100_000, 1_000_000}[random.IntN(3)]
		stalls := make([]time.Duration, 40)
		for i := range stalls {
			stalls[i] = time.Duration(random.Int64N(int64(400 * time.Millisecond)))
		}
		synctest.Test(t, func(t *testing.T) {
			const last = 60 * time.Second
			ctx, cancel := context.WithTimeout(context.Background(), last)
			defer cancel()
			begun := time.Now()
			micro := func() int64 { return time.Since(begun).Microseconds() }
			var mu sync.Mutex
			var s schedule
			var published []time.Duration
			var workers sync.WaitGroup
			for w := range 2 {
				workers.Go(func() {
					own := &turns{}
					for n := w; ctx.Err() == nil; n++ {
						mu.Lock()
						if lead := time.Duration(s.next-micro()) * time.Microsecond; lead > horizon {
							mu.Unlock()
							time.Sleep(lead - horizon/2)
							continue
						}
						k := claim{paced: true, at: time.Now()}
						most := max(1, int(float64(rate)/1000*ahead.Seconds()))
						k.turns, s = s.take(micro(), most, rate, n == w)
						mu.Unlock()
						for i := range most {
							if i == most/2 && n%4 == 0 {
								time.Sleep(stalls[n%len(stalls)]) // the worker stands still
							}
							if !own.wait(ctx, k.due(i), k.turns.spacing) {
								break
							}
							mu.Lock()
							published = append(published, time.Since(begun))
							mu.Unlock()
						}
					}
				})
			}
			workers.Wait()
			want := float64(rate) / 1000 * last.Seconds()
			off := float64(len(published))/want - 1
			testkit.Check(t, off >= -.01 && off <= .01,
				"rate %d: %d letters in %s, want %.0f: %+.2f %%", rate/1000, len(published), last, want, 100*off)
			slices.Sort(published)
			most := int(float64(rate)/1000*faster*2) + 4 // two workers, each of which may be late and make up for it
			for i := range published {
				end, _ := slices.BinarySearch(published, published[i]+time.Second)
				testkit.Require(t, end-i <= most,
					"rate %d: %d letters within a second, want at most %d", rate/1000, end-i, most)
			}
		})
	}
}
