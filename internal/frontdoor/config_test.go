package frontdoor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Conventions, bad input: a part that is on without what it needs has no effect. It is an error that names the part or
// field, and what to set.
func TestFieldsWithoutEffect(t *testing.T) {
	b := newBench(t, false)
	good := &shop.Outputs{}
	delivered := func(*message.Message) (int, bool) { return 0, false }
	for _, c := range []struct {
		says, remedy string
		config       spillway.Config
	}{
		{"stages: Config.Publisher is nil", "give a publisher", spillway.Config{Publisher: good, Stages: &stages.Config{}}},
		{"Config.Receiver is set", "set Config.DB or Config.Idempotency", spillway.Config{Publisher: good, Receiver: &idempotency.ReceiverConfig{}}},
		{"Config.CrashLimit is set", "Config.CrashLimit.Store", spillway.Config{Publisher: good, CrashLimit: &crashlimit.Config{}}},
		{"Config.Heartbeat is 1s", "set Config.Store", spillway.Config{Publisher: good, CrashLimit: &crashlimit.Config{Delivered: delivered, Heartbeat: time.Second}}},
		{"Config.Purge is set", "set Config.DB or Config.Idempotency", spillway.Config{Publisher: good, Purge: &idempotency.PurgeConfig{Retention: time.Hour}}},
		{"PurgeConfig.Retention is 0s", "set it", spillway.Config{DB: b.DB, Service: "shop", Purge: &idempotency.PurgeConfig{}}},
		{"Config.Retention is set", "set Config.DB and no Config.Publisher", spillway.Config{Publisher: good, DB: b.DB, Retention: &letters.RetentionConfig{}}},
		{"RetentionConfig.Rules is empty", "name the states", spillway.Config{DB: b.DB, Retention: &letters.RetentionConfig{}}},
		{"Config.Service is set", "set Config.DB", spillway.Config{Publisher: good, Service: "shop"}},
	} {
		if _, err := spillway.New(t.Context(), c.config); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.remedy) {
			t.Errorf("%s: %v", c.says, err)
		}
	}
}

// Conventions: New changes no config of a part that it is given: the caller may use it for another channel.
func TestPartsStayTheCallers(t *testing.T) {
	b := newBench(t, false)
	limit, purge, hold := &crashlimit.Config{}, &idempotency.PurgeConfig{Retention: time.Hour}, &breaker.Config{}
	if _, err := spillway.New(t.Context(), spillway.Config{DB: b.DB, CrashLimit: limit, Purge: purge, Breaker: hold}); err != nil {
		t.Fatal(err)
	}
	if limit.Store != nil || limit.Logger != nil || purge.Logger != nil || hold.Logger != nil || hold.Classifier != nil {
		t.Errorf("%+v, %+v, %+v", limit, purge, hold)
	}
}
