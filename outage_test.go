package spillway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/outageguard"
)

// Feature R12: behind the front door no message of an outage is dead-lettered, however few attempts a retry has. Health shows the
// outage while it lasts.
func TestOutageDeadLettersNone(t *testing.T) {
	b := newBench(t, true)
	ch, err := spillway.New(t.Context(), spillway.Config{Publisher: b.letters, Outage: &outageguard.Config{}})
	if err != nil {
		t.Fatal(err)
	}
	var away atomic.Bool
	var calls, handled atomic.Int64
	away.Store(true)
	defer b.run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
		if calls.Add(1); away.Load() {
			return nil, classify.Away(errors.New("the bank is away"))
		}
		handled.Add(1)
		return nil, nil
	})()
	const messages = 50
	for i := range messages {
		b.publish(message.NewMessage(fmt.Sprint(i), nil))
	}
	testkit.Eventually(t, "all are held", func() bool {
		h := ch.Health()
		return !h.OK && h.Handlers[0].Waiting == messages-1 || len(h.Handlers) > 0 && h.Handlers[0].Waiting == messages
	})
	text, err := json.Marshal(ch.Health())
	if err != nil || !strings.Contains(string(text), `"handler":"billing"`) || !strings.Contains(string(text), `"reason":"away"`) {
		t.Errorf("%s, %v", text, err)
	}
	away.Store(false)
	testkit.Eventually(t, "all are handled", func() bool { return handled.Load() == messages })
	testkit.Eventually(t, "the guard closes", func() bool { return ch.Health().OK })
	if letters := b.waiting(); len(letters) != 0 {
		t.Errorf("%d dead letters", len(letters))
	}
}

// Decision 13: Health shows the channel's own stores that are away, with or without a guard.
func TestHealthShowsStores(t *testing.T) {
	b := newBench(t, true)
	ch, err := spillway.New(t.Context(), spillway.Config{DB: b.db})
	if err != nil {
		t.Fatal(err)
	}
	move := func(from, to string) {
		t.Helper()
		if _, err := b.db.Exec("ALTER TABLE " + from + " RENAME TO " + to); err != nil {
			t.Fatal(err)
		}
	}
	move("spillway_keys", "elsewhere")
	defer b.run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) { return nil, b.apply(msg) })()
	b.publish(message.NewMessage("1", nil), message.NewMessage("2", nil))
	testkit.Eventually(t, "Health shows the store of keys", func() bool {
		h := ch.Health()
		return !h.OK && len(h.Handlers) == 0 && len(h.Stores) == 1 && strings.Contains(h.Stores[0].Name, "the store of keys") && h.Stores[0].Waiting == 2
	})
	move("elsewhere", "spillway_keys")
	testkit.Eventually(t, "the store is back", func() bool { return ch.Health().OK && len(b.effects()) == 2 })
}

// Without Config.Outage there is no guard, and Health has nothing to report.
func TestNoOutageGuard(t *testing.T) {
	b := newBench(t, false)
	ch, err := spillway.New(t.Context(), spillway.Config{Publisher: b.letters, Logger: watermill.NopLogger{}})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(ch.Health()); ch.Outage() != nil || string(text) != `{"ok":true,"handlers":[]}` {
		t.Errorf("%v, %s, %v", ch.Outage(), text, err)
	}
	if _, err := spillway.New(t.Context(), spillway.Config{Publisher: b.letters, Outage: &outageguard.Config{Share: 2}}); err == nil ||
		!strings.Contains(err.Error(), "Config.Share is 2") {
		t.Errorf("%v", err)
	}
}
