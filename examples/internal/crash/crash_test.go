package crash

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-consume") {
		Main("crash", consume, nil)
		return
	}
	goleak.VerifyTestMain(m)
}

// consume is a consumer that stores nothing, or ends without being asked to.
func consume(ctx context.Context, c *Consumer) error {
	if c.Brokers == "none" {
		return errors.New("no brokers")
	}
	<-ctx.Done()
	return nil
}

// What is wrong with a plan is said before any server is asked.
func TestReady(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.jsonl")
	testkit.NoError(t, os.WriteFile(bad, []byte("{\"event\":\"push\",\"payload\":{}}\n[]\n"), 0o600))
	for _, c := range []struct {
		plan Plan
		want string
	}{
		{Plan{Setting: Setting{Input: bad}}, "line 2"},
		{Plan{Setting: Setting{Input: bad + ".missing"}}, "no such file"},
		{Plan{Kills: 1, KillAt: -1}, "negative"},
		{Plan{Kills: -1}, "negative"},
		{Plan{Kills: 1, KillAt: 61}, "-kill-at 61"},
		{Plan{Kills: 1 << 62, KillAt: 4}, "give less"},
	} {
		if err := c.plan.Ready(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.plan, err)
		}
	}
	plan := Plan{Kills: 2}
	if err := plan.Ready(); err != nil || plan.KillAt != 15 || plan.Topic == "" {
		t.Errorf("%+v: %v", plan, err)
	}
}

// Without PostgreSQL there is SQLite, and it says so; but an address that was given is not passed over.
func TestOpenDatabase(t *testing.T) {
	t.Setenv("SPILLWAY_POSTGRES_PORT", "1")
	t.Setenv("SPILLWAY_POSTGRES", "")
	var s Setting
	_, cleanUp, err := OpenDatabase(&s, "")
	testkit.NoError(t, err)
	if err := cleanUp(); err != nil || s.Driver != "sqlite" || !strings.Contains(s.Database(), "SQLite") {
		t.Errorf("%s: %v", s.Database(), err)
	}
	for _, address := range []string{"postgres://me:secret@127.0.0.1:1/db", "postgres://me:secret@127.0.0.1:x/db", "host=/nowhere password=secret"} {
		t.Setenv("SPILLWAY_POSTGRES", address)
		_, _, err := OpenDatabase(&s, "")
		if err == nil || !strings.Contains(err.Error(), "SPILLWAY_POSTGRES") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func tell(t *testing.T, brokers string, broker Broker) error {
	t.Setenv("SPILLWAY_POSTGRES_PORT", "1")
	t.Setenv("SPILLWAY_POSTGRES", "")
	plan := Plan{Setting: Setting{Brokers: brokers}, Kills: 1, KillAt: 50}
	testkit.NoError(t, plan.Ready())
	summaries := make(chan *message.Message)
	defer close(summaries)
	broker.Live, broker.Summaries = testkit.Nowhere{}, summaries
	_, err := Tell(context.Background(), &plan, broker)
	return err
}

// A consumer that has done all it can before it is killed is noticed at once, not when the time is up.
func TestTooLate(t *testing.T) {
	backlog := func(context.Context) (int, error) { return 0, nil }
	if err := tell(t, "", Broker{Backlog: backlog}); err == nil || !strings.Contains(err.Error(), "-kill-at 50") || !strings.Contains(err.Error(), "not more than 0") {
		t.Error(err)
	}
}

// What a consumer holds is no rest: it is waited for until the broker has it back, and counted again.
func TestHeld(t *testing.T) {
	held, stops := true, 0
	err := tell(t, "", Broker{
		Backlog: func(context.Context) (int, error) {
			if held || stops == 4 {
				return 0, nil
			}
			held = true // the consumer has taken it again
			return 1, nil
		},
		Holders: func(context.Context) (int, error) {
			stops++
			held = stops%2 == 1 // the first answer comes too early
			return stops % 2, nil
		},
	})
	if err == nil || !strings.Contains(err.Error(), "-kill-at 50") || stops != 4 {
		t.Errorf("asked %d times: %v", stops, err)
	}
}

// A consumer that ends by itself ends the story.
func TestConsumerEnds(t *testing.T) {
	busy := func(context.Context) (int, error) { return 1, nil }
	if err := tell(t, "none", Broker{Backlog: busy}); err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Error(err)
	}
}
