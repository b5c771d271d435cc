package main

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/watermill-spillway/spillway/examples/internal/chart"
	"github.com/watermill-spillway/spillway/examples/internal/leaks"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// short is a plan of a second or two.
func short(t *testing.T, args ...string) *Plan {
	t.Helper()
	return testkit.Must(
		parse(append([]string{"-before", "200ms", "-down", "300ms", "-after", "300ms", "-rate", "50"}, args...)))
}

// until keeps the downstream away until something is there to be seen, however slow the machine.
func until(t *testing.T, seen func(*story) bool) func(*story) {
	return func(s *story) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !seen(s); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Error("it was not to be seen in a minute")
				return
			}
		}
	}
}

// Without the guard an outage dead-letters healthy webhooks, which the result says.
func TestWithout(t *testing.T) {
	t.Parallel()
	plan := short(t, "-without")
	plan.downUntil = until(t, func(s *story) bool { return s.service.meter.letters.Load() > int64(len(plan.poisoned)) })
	result, err := run(t.Context(), plan)
	testkit.Check(t, err == nil && result.DeadLetteredByIt != 0 && !result.Good() && result.Lost == 0 &&
		result.DuplicateEffects == 0, "%s, %v", result.JSON(), err)
}

// What makes no sense is refused before anything is opened, by the name of its flag.
func TestReady(t *testing.T) {
	for _, args := range []string{
		"-on nats", "-how sulk", "-rate 0", "-rate 10001", "-down 1ms", "-before -1s", "-after 2h", "-in-flight 0", "-in-flight 1001",
		"-poison 1", "-poison NaN", "-poison -1", "-limit 0s", "-rate 10000 -down 1h", "-input /nowhere",
	} {
		plan := short(t, strings.Fields(args)...)
		_, err := run(context.Background(), plan)
		flag, _, _ := strings.Cut(args, " ")
		testkit.Check(t, err != nil && (strings.Contains(err.Error(), flag) || flag == "-input"), "%s: %v", args, err)
	}
	if _, err := parse([]string{"more"}); err == nil {
		t.Error("an argument is taken for nothing")
	}
}

// The seed decides.
func TestDraw(t *testing.T) {
	draw := func(seed string) string {
		plan := short(t, "-seed", seed)
		testkit.NoError(t, plan.ready())
		var b strings.Builder
		for _, msg := range plan.deliveries {
			b.WriteString(msg.UUID + " ")
		}
		return b.String()
	}
	one, same, other := draw("1"), draw("1"), draw("2")
	testkit.Check(t, one == same && one != other, "the seed does not decide")
}

// The chart fits a terminal of 80 columns, whatever the numbers.
func TestPicture(t *testing.T) {
	w := &watch{Picture: chart.Picture{Out: os.Stderr}, start: time.Now(), story: &story{plan: &Plan{Rate: 100}, down: &downstream{}}}
	w.last = sample{at: w.start.Add(99 * time.Hour), handled: 1e6, calls: 1e6, dead: 1e5, backlog: 1e5, held: 1000, state: "probing", perSecond: 1e5, callsOfOne: 1e5}
	w.rates, w.calls, w.dead = slices.Repeat([]float64{1e6}, 100), slices.Repeat([]float64{1e6}, 100), slices.Repeat([]float64{1e6}, 100)
	w.guard = slices.Repeat([]string{"closed", "open", "probing", "ramping"}, 100)
	for _, line := range w.picture() {
		n := len([]rune(line))
		testkit.Check(t, n <= 79, "%d columns: %s", n, line)
	}
	got := strip([]string{"closed", "open", "probing", "ramping", "closed"})
	testkit.Check(t, got == "·opr·", "%v", got)
}

// The rate is back at the end of the first half second in which enough was handled.
func TestBackAfter(t *testing.T) {
	start := time.Now()
	at := func(milliseconds ...int) (times []time.Time) {
		for _, n := range milliseconds {
			times = append(times, start.Add(time.Duration(n)*time.Millisecond))
		}
		return times
	}
	for _, c := range []struct {
		handled []time.Time
		want    time.Duration
		ok      bool
	}{
		{nil, 0, false},
		{at(-3, -2, -1), 0, false},
		{at(0, 400, 800, 1200), 0, false},
		{at(1400, 0, 600, 1000, 1200), 1400 * time.Millisecond, true},
	} {
		if got, ok := backAfter(c.handled, start, 6); got != c.want || ok != c.ok {
			t.Errorf("%v, %v: want %v, %v", got, ok, c.want, c.ok)
		}
	}
}

// The lines are JSON of numbers alone, and the last one ends with what decides.
func TestLines(t *testing.T) {
	seconds := 1.5
	r := Result{Lost: 1, SecondsToFullRate: &seconds}
	testkit.Check(t, strings.HasSuffix(r.JSON(), `"lost":1}`) &&
		strings.Contains(r.JSON(), `"dead_lettered_by_outage":0,`), "%v", r.JSON())
	testkit.NoError(t, json.Unmarshal([]byte(r.JSON()), &map[string]float64{}))
	want := `{"figure":"outage","messages_during":0,"calls_during":0,"dead_lettered":0,"seconds_to_full_rate_after":1.5}`
	testkit.Check(t, r.figure() == want, "%v", r.figure())
	testkit.Check(t, !r.Good() && !(Result{DuplicateEffects: 1}).Good() && !(Result{DeadLetteredByIt: 1}).Good() &&
		(Result{DeadLettered: 1}).Good(), "a promise that was not kept is good, or one that was kept is not")
}

// Promise P3, feature R12, end to end: with the guard an outage dead-letters nothing, loses nothing, and the downstream
// is hardly called.
func TestGuarded(t *testing.T) {
	for _, c := range []struct {
		on, how string
		server  func(testing.TB)
	}{
		{"memory", refuse, func(testing.TB) {}},
		{"memory", busy, func(testing.TB) {}},
		{"kafka", refuse, func(t testing.TB) { services.Kafka(t) }},
		{"rabbitmq", refuse, func(t testing.TB) { services.AMQP(t) }},
		{"postgres", refuse, func(t testing.TB) { services.Postgres(t) }},
	} {
		t.Run(c.on+" "+c.how, func(t *testing.T) {
			t.Parallel()
			c.server(t)
			plan := short(t, "-how", c.how, "-on", c.on)
			plan.downUntil = until(t, func(s *story) bool { return s.service.meter.probes.Load() >= 2 })
			result, err := run(t.Context(), plan)
			testkit.Check(t, err == nil && result.Good() && result.DeadLettered == len(plan.poisoned),
				"%s, %v", result.JSON(), err)
			if most := 2*plan.InFlight + result.Probes; result.CallsDuring > most {
				t.Errorf("%d calls, which is more than %d: %s", result.CallsDuring, most, result.JSON())
			}
		})
	}
}

// A message stays in the topic until it is acked: it comes again after a nack, and the next subscription gets what was
// not settled.
func TestMemory(t *testing.T) {
	topic := newMemory(2)
	messages := testkit.Must(topic.Subscribe(t.Context(), ""))
	ids := []string{"a", "b", "c"}
	for _, id := range ids {
		testkit.NoError(t, topic.Publish("", message.NewMessage(id, nil)))
	}
	a, b := <-messages, <-messages
	select {
	case msg := <-messages:
		t.Errorf("%s is a third at the same time", msg.UUID)
	default:
	}
	a.Ack()
	b.Nack()
	seen := map[string]bool{}
	for len(seen) < 2 {
		msg := <-messages
		seen[msg.UUID] = true
		msg.Ack()
	}
	testkit.Check(t, seen["b"] && seen["c"], "%v", seen)
	testkit.NoError(t, topic.Close())
	n, err := topic.backlog(context.Background())
	testkit.Check(t, err == nil && n == 0, "%d are left, %v", n, err)
}

// Closing ends the contexts of messages, whose handlers then give them back: they stay in the topic.
func TestMemoryCloses(t *testing.T) {
	topic := newMemory(1)
	messages := testkit.Must(topic.Subscribe(t.Context(), ""))
	testkit.NoError(t, topic.Publish("", message.NewMessage("a", nil), message.NewMessage("b", nil)))
	msg := <-messages
	go func() {
		<-msg.Context().Done()
		msg.Nack()
	}()
	testkit.NoError(t, topic.Close())
	n, err := topic.backlog(context.Background())
	testkit.Check(t, err == nil && n == 2, "%d are left, %v", n, err)
}
