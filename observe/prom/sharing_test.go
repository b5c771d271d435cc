package prom_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/observe/prom"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// instance is a process of a service, as its scrapes see it.
type instance struct {
	*spy
	registry *prometheus.Registry
	channel  *spillway.Channel
}

// instances starts n instances of a service on one database, whose scrapes wait for so long.
func instances(t *testing.T, d databases.Database, address string, n int, every, wait time.Duration) []*instance {
	t.Helper()
	all := make([]*instance, n)
	for i := range all {
		db, s := spied(t, d, address)
		all[i] = &instance{spy: s, registry: prometheus.NewPedanticRegistry()}
		metrics := testkit.Must(prom.New(prom.Config{Registerer: all[i].registry, Interval: every}))
		metrics.Wait(wait)
		watched := spillway.Config{Service: "shop", DB: db}
		testkit.NoError(t, metrics.Observe(&watched))
		all[i].channel = testkit.Must(spillway.New(t.Context(), watched))
		testkit.NoError(t, metrics.Watch(t.Context(), all[i].channel))
	}
	return all
}

// letter puts a dead letter into the store.
func (i *instance) letter(t *testing.T, id, reason string) {
	t.Helper()
	l := poison.Letter{DeadLetterTopic: "orders.dlq", Original: newMessage(id)}
	l.Origin.Topic, l.Origin.Handler, l.Failure.Reason = "orders", "billing", reason
	l.Failure.FirstFailedAt, l.Failure.LastFailedAt = time.Now(), time.Now()
	testkit.NoError(t, i.channel.Letters().Publish("orders.dlq", l.Encode()))
}

// scrape returns the families by their names.
func (i *instance) scrape(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	byName := make(map[string]*dto.MetricFamily)
	for _, f := range testkit.Must(i.registry.Gather()) {
		byName[f.GetName()] = f
	}
	return byName
}

// value is the value of the only series of a gauge.
func value(t *testing.T, families map[string]*dto.MetricFamily, name string) float64 {
	t.Helper()
	f := families[name]
	if f == nil || len(f.Metric) != 1 {
		t.Errorf("%s has no single series: %v", name, f)
		return -1
	}
	return f.Metric[0].GetGauge().GetValue()
}

// question is in one statement of each look at the letters, and in no other.
const question = "COALESCE(SUM(waiting)"

// asks is how often the instances asked the store.
func asks(all []*instance) (n int) {
	for _, i := range all {
		n += i.count(question)
	}
	return n
}

// Feature O1: an instance asks the database once within the interval, however often it is scraped at the same time.
func TestScrapesShareOneAnswer(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		all := instances(t, d, address, 3, time.Hour, time.Minute)
		for n := range 7 {
			all[0].letter(t, fmt.Sprint(n), "boom")
		}
		var scrapes sync.WaitGroup
		for _, one := range all {
			for range 4 {
				scrapes.Go(func() {
					for range 25 {
						families := one.scrape(t)
						testkit.Equal(t, "up", value(t, families, "spillway_source_up"), 1)
						testkit.Equal(t, "causes", value(t, families, "spillway_letters_causes"), 1)
						waiting := families["spillway_letters_waiting"].GetMetric()[0].GetGauge().GetValue()
						testkit.Equal(t, "letters", waiting, 7)
					}
				})
			}
		}
		scrapes.Wait()
		testkit.Equal(t, "questions of 3 instances for 300 scrapes", asks(all), 3)
	})
}

// Feature V16: the series that fire the alerts of letters that wait, and of new causes, leave a snoozed cause out.
// Those that count it still do.
func TestSnoozedCause(t *testing.T) {
	one := instances(t, databases.SQLite, databases.SQLite.Create(t), 1, time.Millisecond, time.Minute)[0]
	one.letter(t, "1", "boom")
	one.letter(t, "2", "bang")
	reasons := func() map[string]string {
		found := make(map[string]string)
		for name, family := range one.scrape(t) {
			for _, metric := range family.Metric {
				for _, label := range metric.Label {
					if label.GetName() == "reason" {
						found[strings.TrimPrefix(name, "spillway_letters_")] += label.GetValue() + " "
					}
				}
			}
		}
		found["oldest"] = fmt.Sprint(one.scrape(t)["spillway_letters_oldest_timestamp_seconds"] != nil)
		return found
	}
	snoozed, until := "", time.Now().Add(time.Hour)
	for _, want := range []map[string]string{
		{"cause_oldest_timestamp_seconds": "bang boom ", "newest_cause_timestamp_seconds": "bang boom ", "oldest": "true"},
		{"cause_oldest_timestamp_seconds": "bang ", "newest_cause_timestamp_seconds": "bang ", "oldest": "true"},
		{"cause_oldest_timestamp_seconds": "", "newest_cause_timestamp_seconds": "", "oldest": "false"},
	} {
		if snoozed != "" {
			for _, g := range testkit.Must(one.channel.Letters().Groups(t.Context(), letters.Filter{Reasons: []string{snoozed}})) {
				testkit.Must(hidden.Of(one.channel.Letters()).ChangeNote(t.Context(), g.Cause, inside.CauseChange{SnoozedUntil: &until}, letters.Act{By: "ann", Reason: "INC-7"}))
			}
		}
		want["waiting"] = "bang boom "
		testkit.Eventually(t, "the series without "+snoozed, func() bool {
			found := reasons()
			for name, all := range want {
				if each := strings.Fields(found[name]); strings.Join(slices.Sorted(slices.Values(each)), " ") != strings.TrimSpace(all) {
					return false
				}
			}
			return true
		}, func() string { return fmt.Sprint(reasons()) })
		snoozed = map[string]string{"": "boom", "boom": "bang"}[snoozed]
	}
}
