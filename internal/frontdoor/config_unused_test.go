package frontdoor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// Conventions, bad input: a field of a part that is off has no effect. It is an error that names the field and what
// turns the part on.
func TestFieldsWithoutEffect(t *testing.T) {
	b := newBench(t, false)
	stage := func(s stages.Config) spillway.Config { return spillway.Config{Publisher: &shop.Outputs{}, Stages: s} }
	receive := func(r idempotency.ReceiverConfig) spillway.Config {
		return spillway.Config{Publisher: &shop.Outputs{}, Receiver: r}
	}
	limit := func(l crashlimit.Config) spillway.Config {
		return spillway.Config{Publisher: &shop.Outputs{}, CrashLimit: l}
	}
	purge := func(p idempotency.PurgeConfig) spillway.Config {
		return spillway.Config{DB: b.DB, Service: "shop", Purge: p}
	}
	id := func(*message.Message) string { return "" }
	delivered := func(*message.Message) (int, bool) { return 0, false }
	for _, c := range []struct {
		says, remedy string
		config       spillway.Config
	}{
		{"Config.Stages.SharedTopics is set", "set Config.Stages.Subscriber", stage(stages.Config{SharedTopics: true})},
		{"Config.Stages.Jitter is set", "set Config.Stages.Subscriber", stage(stages.Config{Jitter: .5})},
		{"Config.Stages.MaxDelay is set", "set Config.Stages.Subscriber", stage(stages.Config{MaxDelay: time.Hour})},
		{"Config.Stages.MaxHold is set", "set Config.Stages.Subscriber", stage(stages.Config{MaxHold: time.Hour})},
		{"Config.Stages.Stages is set", "set Config.Stages.Subscriber", stage(stages.Config{Stages: stages.Delays(time.Second)})},
		{"Config.Receiver.AnyPayload is set", "set Config.DB or Config.Idempotency", receive(idempotency.ReceiverConfig{AnyPayload: true})},
		{"Config.Receiver.MaxHold is set", "set Config.DB or Config.Idempotency", receive(idempotency.ReceiverConfig{MaxHold: time.Hour})},
		{"Config.Receiver.RequeueAfter is set", "set Config.DB or Config.Idempotency", receive(idempotency.ReceiverConfig{RequeueAfter: time.Second})},
		{"Config.CrashLimit.Key is set", "set Config.DB or Config.CrashStore", limit(crashlimit.Config{Key: id})},
		{"Config.CrashLimit.Coordinates is set", "set Config.DB or Config.CrashStore", limit(crashlimit.Config{Coordinates: id})},
		{"Config.CrashLimit.Heartbeat is 1s", "set Config.CrashStore", limit(crashlimit.Config{Delivered: delivered, Heartbeat: time.Second})},
		{"Config.CrashLimit.Heartbeat is set", "set Config.CrashLimit.Max", spillway.Config{DB: b.DB, Service: "shop", CrashLimit: crashlimit.Config{Heartbeat: time.Second}}},
		{"Config.Purge.Stages is set", "set Config.Purge.Retention", purge(idempotency.PurgeConfig{Stages: time.Hour})},
	} {
		if _, err := spillway.New(t.Context(), c.config); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.remedy) {
			t.Errorf("%s: %v", c.says, err)
		}
	}
}
