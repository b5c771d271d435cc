package crash

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
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
		testkit.Check(t, err != nil && strings.Contains(err.Error(),
			"SPILLWAY_POSTGRES") && !strings.Contains(err.Error(), "secret"), "%s: %v", address, err)
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

// A consumer that ends by itself ends the story.
func TestConsumerEnds(t *testing.T) {
	busy := func(context.Context) (int, error) { return 1, nil }
	if err := tell(t, "none", Broker{Backlog: busy}); err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Error(err)
	}
}
