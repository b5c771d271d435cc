package main

import (
	"context"
	"crypto/rand"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/connect"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// brokers are the addresses that --broker takes.
var brokers = map[string]func(*testing.T) string{
	"sql":   func(*testing.T) string { return "sql" },
	"kafka": func(t *testing.T) string { return "kafka://" + strings.Join(services.Kafka(t), ",") },
	"amqp":  func(t *testing.T) string { return services.AMQP(t) },
}

// Features V1, V8, V10: a dead-letter topic is redriven from each broker, once, to allowed topics alone.
func TestDrain(t *testing.T) {
	for name, address := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := address(t)
			s := shopOn(t, databases.Postgres, databases.Postgres.Create(t))
			s.env = append(s.env, "SPILLWAY_BROKER="+address)
			live := "drained-" + strings.ToLower(rand.Text()[:10])
			dead := live + ".dlq"
			topics := []string{live, dead, naming.Scheme{}.ParkedTopic(dead), naming.Scheme{}.QuarantineTopic(dead)}
			broker := s.broker(address, topics...)
			if name == "sql" {
				for _, topic := range topics {
					s.subscribe(broker, "reader", topic, 0)
				}
			}
			var want []string
			for _, id := range []string{"one", "two", "three"} {
				want = append(want, id)
				testkit.NoError(t, broker.Publish(dead, letter(id, `{}`, func(l *poison.Letter) { l.Origin.Topic = live })))
			}
			testkit.NoError(t, broker.Publish(dead, letter("forged", `{}`, func(l *poison.Letter) { l.Origin.Topic = "admin" })))
			args := []string{"drain", dead, "--allow", live, "--idle", "20s"}
			testkit.Eventually(t, "the letters", func() bool { // a transaction of another test on the server hides rows for its time
				return strings.Contains(s.pipe(append(args, "--dry-run")...).out, " of 4 messages")
			})
			for range 2 { // the first took nothing
				s.pipe(append(args, "--dry-run", "--rate", "3")...).wants(t, 0, "would redrive 3 letters of 4 messages, in 1s",
					"would park 1 letter: a topic that --allow does not name")
			}
			s.pipe(append(args, "--dry-run", "--json")...).wants(t, 0, `"messages":4,"letters":3`)
			if name == "kafka" { // its groups lose their offsets: the first drain must be chosen
				s.pipe(append(args, "--yes")...).wants(t, 2, "has no offset", "--from-beginning")
				args = append(args, "--from-beginning")
			}
			s.pipe(args...).wants(t, 4, "redrive 4 messages of "+dead)
			s.pipe(append(args, "--yes", "--max", "2")...).wants(t, 0, "redriven 2, parked 0")
			s.pipe(append(args, "--yes")...).wants(t, 5, "redriven 1, ")
			got := s.subscribe(broker, "reader", live, 3)
			testkit.Check(t, slices.Equal(got, want), "redriven %v, want %v", got, want)
			got = s.subscribe(broker, "reader", naming.Scheme{}.ParkedTopic(dead), 1)
			testkit.Check(t, slices.Equal(got, []string{"forged"}), "parked %v", got)
		})
	}
}

// Features V1, V10: after a killed drain on Kafka a hasty one says that it took none, and a patient one takes all.
func TestDrain_killed(t *testing.T) {
	t.Parallel() // it waits most of its time
	address := brokers["kafka"](t)
	s := shopOn(t, databases.Postgres, databases.Postgres.Create(t))
	s.env = append(s.env, "SPILLWAY_BROKER="+address)
	live := "killed-" + strings.ToLower(rand.Text()[:10])
	dead := live + ".dlq"
	broker := s.broker(address, live, dead)
	for _, id := range []string{"one", "two", "three"} {
		testkit.NoError(t, broker.Publish(dead, letter(id, `{}`, func(l *poison.Letter) { l.Origin.Topic = live })))
	}
	args := []string{"drain", dead, "--allow", live, "--yes", "--from-beginning"}
	killed := exec.Command(binary, append(args, "--rate", "0.01")...)
	killed.Env = s.env
	testkit.NoError(t, killed.Start())
	s.subscribe(broker, "watcher", live, 1)
	testkit.NoError(t, killed.Process.Signal(syscall.SIGKILL))
	_ = killed.Wait()
	s.pipe(append(args, "--idle", "1ms")...).wants(t, 5, "run it again")
	got := s.pipe(args...)
	testkit.Check(t, got.code == 0 && !strings.Contains(got.out, "redriven 0"), "%+v", got)
	all := s.subscribe(broker, "reader", live, everything)
	if ids := slices.Compact(slices.Sorted(slices.Values(all))); len(ids) != 3 || len(all) > 4 { // the one in flight may come twice
		t.Errorf("redriven %v", all)
	}
}

// broker opens a broker that has topics, until the test ends.
func (s *shop) broker(address string, topics ...string) *connect.Broker {
	s.t.Helper()
	broker := testkit.Must(connect.Open(s.t.Context(), address, s.open, watermill.NopLogger{}))
	s.t.Cleanup(func() { _ = broker.Close() })
	testkit.NoError(s.t, broker.Publisher.(poison.Initializer).InitializeTopics(topics...))
	return broker
}

// everything is all that a topic has.
const everything = -1

// subscribe reads n messages of a topic, and returns their ids.
func (s *shop) subscribe(broker *connect.Broker, group, topic string, n int) (ids []string) {
	s.t.Helper()
	for _, msg := range s.read(broker, group, topic, n) {
		ids = append(ids, msg.UUID)
	}
	return ids
}

func (s *shop) read(broker *connect.Broker, group, topic string, n int) (all []*message.Message) {
	s.t.Helper()
	sub, err := broker.Subscriber(group)
	testkit.NoError(s.t, err)
	defer sub.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), testkit.Patience)
	defer cancel()
	if n == everything {
		if n, err = sub.Backlog(ctx, topic); err != nil {
			s.t.Fatal(err)
		}
	}
	messages := testkit.Must(sub.Subscribe(ctx, topic))
	for range n {
		msg, ok := <-messages
		if !ok {
			return all
		}
		all = append(all, msg)
		msg.Ack()
	}
	return all
}

// Features V7, V10: redrive work does the campaigns of a service. Killed, and begun again, it loses none.
func TestWork(t *testing.T) {
	t.Parallel() // it waits most of its time
	var messages []*message.Message
	for i := range 60 {
		messages = append(messages, letter("id-"+string(rune('a'+i/26))+string(rune('a'+i%26)), "{}"))
	}
	s := shopOn(t, databases.Postgres, databases.Postgres.Create(t), messages...)
	s.env = append(s.env, "SPILLWAY_BROKER=sql")
	broker := s.broker("sql", "orders")
	s.subscribe(broker, "reader", "orders", 0)
	s.pipe("redrive", "--all", "--rate", "30", "--reason", "INC-7", "--yes", "--detach").wants(t, 0)
	killed := exec.Command(binary, "work", "--allow", "orders", "--lease", "1s")
	killed.Env = s.env
	testkit.NoError(t, killed.Start())
	redriven := func() int {
		page, err := s.campaigns().List(t.Context(), campaigns.List{})
		testkit.Require(t, err == nil && len(page) == 1, "%v, %v", page, err)
		return page[0].Redriven
	}
	testkit.Eventually(t, "it redrives", func() bool { return redriven() > 5 })
	testkit.NoError(t, killed.Process.Signal(syscall.SIGKILL))
	_ = killed.Wait()
	testkit.Require(t, redriven() < 60, "it was killed too late")
	s.pipe("work", "--allow", "orders", "--once").wants(t, 0)
	testkit.Equal(t, "redriven", redriven(), 60)
	all := s.subscribe(broker, "reader", "orders", everything)
	if ids := slices.Compact(slices.Sorted(slices.Values(all))); len(ids) != 60 || len(all) > 61 { // the one in flight may come twice
		t.Errorf("%d messages came back, of %d letters", len(all), len(ids))
	}
}
