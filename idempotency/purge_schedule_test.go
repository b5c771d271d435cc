package idempotency

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe"
)

// fakeStore answers each batch with the next of its numbers, after a second, and notes when it was asked.
type fakeStore struct {
	Store         // whose other methods are not called
	numbers []any // int, error, or what to panic with
	began   time.Time
	asked   []string
	takes   time.Duration
	deaf    chan struct{} // what it waits for instead, if set
}

func (f *fakeStore) Purge(ctx context.Context, before time.Time, limit int) (int, error) {
	now := time.Now()
	f.asked = append(f.asked, fmt.Sprint(now.Sub(f.began), " ", now.Sub(before), " ", limit))
	if _, bounded := ctx.Deadline(); !bounded {
		panic("a batch without a bound")
	}
	if f.deaf != nil {
		<-f.deaf
		return 0, nil
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(f.takes):
	}
	if len(f.numbers) == 0 {
		return 0, nil
	}
	next := f.numbers[0]
	f.numbers = f.numbers[1:]
	switch next := next.(type) {
	case int:
		return next, nil
	case error:
		return 1, next
	default:
		panic(next)
	}
}

func mustPurge(store Store, config PurgeConfig) *purge { return testkit.Must(newPurge(store, config)) }

// Feature I8: one whole purge is as many batches as it takes, with pauses between them, of what was old at its begin.
// One that fails says when and why, and how far it came; it ends with its context.
func TestPurgeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{numbers: []any{10, 10, 3}, began: time.Now(), takes: time.Second}
		purged := 0
		p := mustPurge(store, PurgeConfig{Retention: 24 * time.Hour,
			OnRun: func(_ context.Context, n int, _ error) { purged += n; panic("contained") }})
		p.most = 10
		n, err := p.once(t.Context())
		if want := "[0s 24h0m0s 10 4s 24h0m4s 10 8s 24h0m8s 10]"; n != 23 || purged != 23 || err != nil || fmt.Sprint(store.asked) != want {
			t.Error(n, purged, err, store.asked)
		}
		testkit.Returns(t, 0)(p.once(t.Context()))

		boom := errors.New("boom")
		store.numbers = []any{10, boom, "panic", 10}
		if n, err := p.once(t.Context()); n != 11 || !errors.Is(err, boom) || !strings.Contains(err.Error(), "1999-12-31T00:00:1") {
			t.Error(n, err)
		}
		n, err = p.once(t.Context())
		testkit.Check(t, n == 0 && err != nil && strings.Contains(err.Error(), "panic"), "%v %v", n, err)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		n, err = p.once(ctx)
		testkit.Check(t, n == 10 && errors.Is(err, context.DeadlineExceeded), "%v %v", n, err)
		store.takes = time.Hour
		began := time.Now()
		if _, err := p.once(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != batchTimeout {
			t.Error(err, time.Since(began))
		}
	})
}

// Feature I8: the schedule begins in the first tenth, goes on after a failure, and has ended when the router has.
func TestPurgeSchedule(t *testing.T) {
	first := make(map[string]bool)
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			log := &testkit.Log{}
			store := &fakeStore{numbers: []any{errors.New("boom"), "panic", 5}, began: time.Now(), takes: time.Second}
			p := mustPurge(store, PurgeConfig{Retention: 30 * 24 * time.Hour, Shared: observe.Shared{Logger: log}})
			for round := range 2 {
				store.asked, store.began = nil, time.Now()
				testkit.NoError(t, p.start())
				time.Sleep(4*time.Hour + 7*time.Minute)
				p.stop()
				asked := len(store.asked)
				time.Sleep(4 * time.Hour)
				testkit.Require(t, asked == 5 && len(store.asked) == 5, "%v %v", round, store.asked)
				var times []time.Duration
				for _, a := range store.asked {
					at := testkit.Must(time.ParseDuration(strings.Fields(a)[0]))
					times = append(times, at)
				}
				first[times[0].String()] = true
				if times[0] > 6*time.Minute || times[1]-times[0] != time.Hour+time.Second || times[4]-times[3] != time.Hour+time.Second {
					t.Error(times)
				}
			}
			if notified := fmt.Sprint(log.Errors()); len(log.Errors()) != 2 || !strings.Contains(notified, "boom") || !strings.Contains(notified, "fakeStore") {
				t.Error(notified)
			}
		})
	}
	testkit.Check(t, len(first) >= 10, "processes that start together purge together: %v", first)
}

// Feature I8: a router that stops interrupts a purge without calling that a failure, and waits no longer than it must.
func TestPurgeStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{}
		store := &fakeStore{takes: 30 * time.Second}
		p := mustPurge(store, PurgeConfig{Retention: 30 * 24 * time.Hour, Every: time.Second, Shared: observe.Shared{Logger: log}})
		_ = p.start()
		time.Sleep(5 * time.Second)
		began := time.Now()
		p.stop()
		testkit.Check(t, time.Since(began) == 0 && len(log.Errors()) <= 0 && len(store.asked) == 1,
			"%v %v %v", time.Since(began), log.Errors(), store.asked)
		deaf := &fakeStore{deaf: make(chan struct{})}
		p = mustPurge(deaf, PurgeConfig{Retention: 30 * 24 * time.Hour, Every: time.Second, Shared: observe.Shared{Logger: log}})
		_ = p.start()
		time.Sleep(5 * time.Second)
		began = time.Now()
		p.stop()
		if time.Since(began) != stopTimeout || len(log.Errors()) != 1 || !strings.Contains(log.Errors()[0].String(), "did not end") {
			t.Error(time.Since(began), log.Errors())
		}
		close(deaf.deaf)
	})
}

// Feature I8: who keeps keys for a shorter time than messages may take to come back is told so, with both times.
func TestPurgeRetention(t *testing.T) {
	day := 24 * time.Hour
	for _, c := range []struct {
		retention, horizon time.Duration
		notified           string
	}{
		{13 * day, 0, "the retention 312h0m0s is shorter than the horizon 336h0m0s"}, {14 * day, 0, ""},
		{day, 2 * day, "the retention 24h0m0s is shorter than the horizon 48h0m0s"}, {2 * day, 2 * day, ""}, {day, time.Hour, ""},
	} {
		log := &testkit.Log{}
		mustPurge(&fakeStore{}, PurgeConfig{Retention: c.retention, Horizon: c.horizon, Shared: observe.Shared{Logger: log}})
		if notified := strings.Trim(fmt.Sprint(log.Errors()), "[]"); !strings.Contains(notified, c.notified) || (notified == "") != (c.notified == "") || notified != "" && !strings.Contains(notified, "applied again") {
			t.Errorf("%s, %s: %q", c.retention, c.horizon, notified)
		}
	}
	var none *sqlStore
	for _, store := range []Store{nil, none} {
		testkit.Says(t, testkit.Err(NewPurge(store, PurgeConfig{Retention: day})), "store is nil")
	}
	for want, config := range map[string]PurgeConfig{
		"Retention": {},
		"positive":  {Retention: -day},
		"Horizon":   {Retention: day, Horizon: -1},
		"Every":     {Retention: day, Every: -1},
	} {
		_, err := NewPurge(&fakeStore{}, config)
		testkit.Check(t, err != nil && (want == "positive" || strings.Contains(err.Error(), want)), "%s: %v", want, err)
	}
}
