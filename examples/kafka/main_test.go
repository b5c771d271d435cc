package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// The example starts itself as its consumer, and here that is the test.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-consume") {
		main()
		return
	}
	// Sarama's metrics have one goroutine for the whole process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// Promises P1 and P7, end to end on Kafka: whenever the consumer is killed, nothing is lost and nothing happens twice.
func TestDemo(t *testing.T) {
	services.Kafka(t)
	for _, c := range []struct {
		seed       uint64
		killAt     int
		partitions int
	}{{1, 1, 3}, {2, 35, 1}} {
		plan := crash.Plan{Kills: 1, KillAt: c.killAt}
		plan.Seed = c.seed
		result := testkit.Must(run(context.Background(), &plan, c.partitions))
		if err := result.Check(60); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		nothingIsLeft(t, plan.Topic)
	}
}

func nothingIsLeft(t *testing.T, topic string) {
	t.Helper()
	admin := testkit.Must(sarama.NewClusterAdmin(services.Kafka(t), sarama.NewConfig()))
	defer admin.Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		topics := testkit.Must(admin.ListTopics())
		var left []string
		for name := range topics {
			if strings.HasPrefix(name, topic) {
				left = append(left, name)
			}
		}
		if left == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %q", left)
		}
	}
}

// What cannot be done is an error that says what to do, before anything is made on Kafka.
func TestDemoRefuses(t *testing.T) {
	t.Setenv("SPILLWAY_KAFKA", "127.0.0.1:1")
	for _, c := range []struct {
		plan       crash.Plan
		partitions int
		want       string
	}{
		{crash.Plan{}, 0, "-partitions 0: give 1"},
		{crash.Plan{}, 1 << 40, "-partitions"},
		{crash.Plan{Kills: 1, KillAt: 1000}, 1, "-kill-at 1000"},
		{crash.Plan{}, 1, "SPILLWAY_KAFKA"},
	} {
		if _, err := run(context.Background(), &c.plan, c.partitions); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %s", c, err, c.want)
		}
	}
}
