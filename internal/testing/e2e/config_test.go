package e2e_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/shop"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Conventions, bad input: a configuration with which messages could be lost, that says two things, or has a part on
// without what the part needs, is an error that names the field, and what to set.
func TestNewRefuses(t *testing.T) {
	db := newBench(t, true).DB
	var typedNil *shop.Outputs
	good, keys := &shop.Outputs{}, shop.KeysOf(t, db)
	delivered := func(*message.Message) (int, bool) { return 0, false }
	metrics, key, version := &counting{}, idempotency.ByPayloadHash, idempotency.VersionMetadata("v")
	oneRule := make([]letters.RetentionRule, 1)
	handlers := map[string]idempotency.HandlerKey{"billing": {Key: key, Version: version}}
	inOrder := func(receiver *idempotency.ReceiverConfig, delays ...time.Duration) spillway.Config {
		order := &spillway.OrderedConfig{Delays: delays}
		return spillway.Config{Service: "shop", DB: db, Receiver: receiver, Ordered: order}
	}
	for says, config := range map[string]spillway.Config{
		"Config.Publisher is nil: dead letters would be lost; set Config.DB, or": {Publisher: typedNil},
		"RetryConfig.Attempts":            {Publisher: good, Retry: middleware.RetryConfig{Attempts: -1}},
		"Default cannot be":               {Publisher: good, Classify: classify.Config{Default: classify.ClassAborted}},
		"stages: Config.Publisher is nil": {Publisher: good, Stages: &stages.Config{}},
		"Config.Receiver is set, and has no effect: no message would be recognised; set Config.DB or Config.Idempotency": {Publisher: good,
			Receiver: &idempotency.ReceiverConfig{}},
		"Key is not": {Publisher: good, Idempotency: keys, Receiver: &idempotency.ReceiverConfig{Version: idempotency.VersionMetadata("v")}},
		"CrashLimit.Delivered": {Publisher: good, Idempotency: keys, Receiver: &idempotency.ReceiverConfig{Lease: time.Minute},
			CrashLimit: &crashlimit.Config{Delivered: delivered}},
		"Config.CrashLimit is set":   {Publisher: good, CrashLimit: &crashlimit.Config{Max: 3}},
		"Config.Heartbeat is 1s":     {Publisher: good, CrashLimit: &crashlimit.Config{Delivered: delivered, Heartbeat: time.Second}},
		"Config.Purge is set":        {Publisher: good, Purge: &idempotency.PurgeConfig{Retention: time.Hour}},
		"PurgeConfig.Retention is 0": {DB: db, Service: "shop", Purge: &idempotency.PurgeConfig{Every: time.Minute}},
		"Config.Retention is set, and has no effect: the channel has no dead-letter store; set Config.DB and no Config.Publisher": {Publisher: good,
			DB: db, Retention: &letters.RetentionConfig{Rules: oneRule}},
		"RetentionConfig.Rules is empty":           {DB: db, Retention: &letters.RetentionConfig{}},
		"Config.Service is set":                    {Publisher: good, Service: "shop"},
		"Config.FailureRate is 2":                  {Publisher: good, Breaker: &breaker.Config{FailureRate: 2}},
		"Config.Observers[0] is nil":               {Publisher: good, Observers: []spillway.Observer{(*counting)(nil)}},
		"would count twice":                        {Publisher: good, Observers: []spillway.Observer{metrics, metrics}},
		"Config.Ordered is set, and has no effect": {Publisher: good, Ordered: &spillway.OrderedConfig{}},
		"ReceiverConfig.Lease is 1m0s":             inOrder(&idempotency.ReceiverConfig{Lease: time.Minute}),
		"ReceiverConfig.Version is set":            inOrder(&idempotency.ReceiverConfig{Key: key, Version: version}),
		`Handlers["billing"].Version is set`:       inOrder(&idempotency.ReceiverConfig{Handlers: handlers}),
		"Config.Ordered.Delays[1] is 5ns":          inOrder(nil, time.Second, 5),
	} {
		_, err := spillway.New(t.Context(), config)
		testkit.Check(t, err != nil && strings.Contains(err.Error(), says), "want an error with %q, got %v", says, err)
	}
}

// Conventions: New changes no config of a part that it is given: the caller may use it for another channel.
func TestPartsStayTheCallers(t *testing.T) {
	b := newBench(t, false)
	limit, purge, hold := &crashlimit.Config{}, &idempotency.PurgeConfig{Retention: time.Hour}, &breaker.Config{}
	testkit.Must(spillway.New(t.Context(), spillway.Config{DB: b.DB, CrashLimit: limit, Purge: purge, Breaker: hold}))
	testkit.Check(t, limit.Store == nil && limit.Logger == nil && purge.Logger == nil && hold.Logger == nil &&
		hold.Classifier == nil, "%+v, %+v, %+v", limit, purge, hold)
}

func TestMain(m *testing.M) {
	// A router whose Run fails at start-up, as one test wants, leaves this goroutine of its own behind.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"))
}

type bench struct{ *shop.Shop }

func newBench(t *testing.T, persistent bool) *bench { return &bench{shop.New(t, persistent)} }

// masking returns a mask of the caller's own.
func masking(t *testing.T, secret, mask string) *privacy.Redactor {
	t.Helper()
	return testkit.Must(
		privacy.New(privacy.Rules{Mask: func(text string) string { return strings.ReplaceAll(text, secret, mask) }}))
}

// Conventions, promise P4: two channels that are attached to one router would both claim each message, and every
// message, good ones too, would become a letter.
func TestTwoChannelsOnOneRouter(t *testing.T) {
	b := newBench(t, false)
	channel := func(config spillway.Config) *spillway.Channel {
		return testkit.Must(spillway.New(t.Context(), config))
	}
	out := gochannel.NewGoChannel(gochannel.Config{}, nil)
	for name, second := range map[string]spillway.Config{
		"another service": {DB: b.DB, Service: "shipping"},
		"no database":     {Publisher: out},
	} {
		t.Run(name, func(t *testing.T) {
			one, other := channel(spillway.Config{DB: b.DB, Service: "billing"}), channel(second)
			got := refused(t, &shop.Outputs{}, func(router *message.Router) {
				one.Attach(router)
				router.AddSubscriberDecorators(message.MessageTransformSubscriberDecorator(func(*message.Message) {}))
				other.Attach(router)
			})
			testkit.Check(t, strings.Contains(got, "two channels are attached to one router") &&
				strings.Contains(got, "Config.Receiver.Handlers"), "%v", got)
		})
	}
}

// Feature I1, V9, promise P7: the quick start on each database: each message takes effect once, also out of a letter.
func TestOneDatabaseAtTheDoor(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		testkit.Must(db.Exec(`CREATE TABLE effects (id VARCHAR(36) NOT NULL)`))
		dlc := testkit.Must(spillway.New(t.Context(), spillway.Config{Service: "shop", DB: db}))
		gone := make(chan struct{})
		live := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
		stop := testkit.RunRouter(t, nil, func(router *message.Router) {
			dlc.Attach(router)
			router.AddConsumerHandler("billing", "orders", live, func(msg *message.Message) error {
				select {
				case <-gone:
				default:
					return classify.Permanent(errors.New("no such customer"))
				}
				_, err := idempotency.Tx(msg.Context()).Exec(fmt.Sprintf(`INSERT INTO effects VALUES ('%s')`, msg.UUID))
				return err
			})
		})
		defer stop()
		publish := func(id string) {
			testkit.NoError(t, live.Publish("orders", message.NewMessage(id, []byte("order"))))
		}
		count := func(f letters.Filter) int { return testkit.Must(dlc.Letters().Count(t.Context(), f)) }
		publish("order-1")
		testkit.Eventually(t, "the letter is in the database", func() bool { return count(letters.Filter{}) == 1 })
		close(gone)
		report, err := redrive.Drain(t.Context(), dlc.Letters(), live, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}})
		testkit.Require(t, err == nil && report.Redriven == 1, "%+v: %v", report, err)
		publish("order-1") // again
		publish("order-2")
		testkit.Eventually(t, "each takes effect", func() bool { return effects(t, db) == "order-1,order-2" })
	})
}

func effects(t *testing.T, db *sql.DB) string {
	t.Helper()
	rows := testkit.Must(db.Query(`SELECT id FROM effects ORDER BY id`))
	defer func() { _ = rows.Close() }()
	var ids []string
	for rows.Next() {
		var id string
		testkit.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	return strings.Join(ids, ",")
}
