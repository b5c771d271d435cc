package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/idempotency/pgxstore"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/poison"
)

// line is a delivery of one message of a partition.
type line struct {
	placing.Chains
	order sequence.Delivery
}

func (l *line) Sequence() chain.Sequence                  { return &l.order }
func (l *line) Placing(context.Context, *message.Message) {}

// partition is a source that delivers what the test says, one at a time.
type partition struct {
	t     *testing.T
	db    *sql.DB
	owner *sequence.Owner
	out   chan *message.Message
	mu    sync.Mutex
	seen  []string // by the handler
}

func (p *partition) Close() error { return nil }

func (p *partition) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	placing.Lanes.Store(true)
	p.owner = sequence.Take(ctx).Own(parked.Source{Group: "billing", Topic: topic})
	p.out = make(chan *message.Message)
	if !p.owner.Load(ctx) {
		return nil, ctx.Err()
	}
	context.AfterFunc(ctx, func() { close(p.out) })
	return p.out, nil
}

func (p *partition) send(msg *message.Message, ctx context.Context, l *line) (acked bool) {
	l.Deliver(msg)
	msg.SetContext(placing.With(ctx, l))
	p.out <- msg
	select {
	case <-msg.Acked():
		acked = true
	case <-msg.Nacked():
	case <-time.After(testkit.Patience):
		p.t.Fatalf("%s is not settled", msg.UUID)
	}
	<-l.Returned()
	return acked
}

// message is a message at a position, of a key that is the first letter of its id.
func (p *partition) live(id string, position int64, redrives int) (acked bool) {
	msg := message.NewMessage(id, []byte(id))
	if redrives > 0 {
		msg.Metadata.Set(poison.KeyRedriveCount, fmt.Sprint(redrives))
	}
	lane := []byte(id[:1])
	return p.send(msg, p.t.Context(), &line{order: sequence.Delivery{Owner: p.owner, Lane: lane, RecordKey: lane, Position: position,
		Appends: p.owner.Waits(lane)}})
}

// drain delivers what is due, until all that is parked waits, or nothing is left.
func (p *partition) drain() {
	for {
		ctx, cancel := context.WithTimeout(p.t.Context(), 300*time.Millisecond)
		lane := p.owner.Next(ctx)
		cancel()
		if lane == nil {
			return
		}
		p.owner.Drain(p.t.Context(), p.t.Context(), lane, func(row *sequence.Row) (passed, again bool) {
			order, ctx := p.owner.Parked(p.t.Context(), row)
			l := &line{order: order}
			acked := p.send(row.Msg, ctx, l)
			return acked && !l.order.Again, l.order.Again
		})
	}
}

// again drains as a new owner, which looks at once.
func (p *partition) again() {
	p.owner = p.owner.Ordering.Own(parked.Source{Group: "billing", Topic: "orders"})
	p.owner.Load(p.t.Context())
	p.drain()
}

func (p *partition) count(of string) (n int) {
	p.t.Helper()
	testkit.NoError(p.t, p.db.QueryRow(`SELECT count(*) FROM `+of).Scan(&n))
	return n
}

// ordered runs a channel with Ordered on a partition. handle is called with the id and how often it was seen.
func ordered(t *testing.T, db *sql.DB, handle func(msg *message.Message, times int) error, change ...func(*spillway.Config)) *partition {
	t.Helper()
	config := spillway.Config{Service: "shop", DB: db, Logger: watermill.NopLogger{},
		Ordered: &spillway.OrderedConfig{Delays: []time.Duration{time.Millisecond, time.Millisecond}}}
	for _, c := range change {
		c(&config)
	}
	channel := testkit.Must(spillway.New(t.Context(), config))
	p, times := &partition{t: t, db: db}, map[string]int{}
	testkit.RunRouter(t, watermill.NopLogger{}, func(router *message.Router) {
		channel.Attach(router)
		router.AddConsumerHandler("billing", "orders", p, func(msg *message.Message) error {
			p.mu.Lock()
			p.seen = append(p.seen, msg.UUID)
			times[msg.UUID]++
			n := times[msg.UUID]
			p.mu.Unlock()
			return handle(msg, n)
		})
	})
	return p
}

func (p *partition) want(seen string, letters, parked int) {
	p.t.Helper()
	testkit.Equal(p.t, "handled", strings.Join(p.seen, " "), seen)
	testkit.Equal(p.t, "letters", p.count("spillway_dead_letters"), letters)
	testkit.Equal(p.t, "parked", p.count("spillway_parked"), parked)
}

var errDown = errors.New("connection refused")

// Feature R13: a message that fails waits, the later ones of its key wait behind it, and other keys go on.
func TestOrderedParks(t *testing.T) {
	databases.Each(t, func(t *testing.T, kind databases.Database, address string) {
		p := ordered(t, kind.Open(t, address), func(msg *message.Message, times int) error {
			if msg.UUID == "a1" && times < 3 {
				return errDown
			}
			return nil
		})
		for at, id := range []string{"a1", "a2", "b1", "a3", "a2"} { // a2 comes again, as after a crash
			if id == "a2" {
				at = 1
			}
			testkit.Check(t, p.live(id, int64(at), 0), "%s is nacked", id)
		}
		p.want("a1 b1", 0, 3)
		p.drain()
		p.want("a1 b1 a1 a1 a2 a3", 0, 0)
		p.live("a4", 5, 0)
		p.live("a1", 0, 0) // again: absorbed
		p.want("a1 b1 a1 a1 a2 a3 a4", 0, 0)
	})
}

// Feature R13: a message that ends without an effect leaves a trace, by which it is absorbed when it comes again behind
// later ones. A redrive may enter.
func TestOrderedSettles(t *testing.T) {
	for name, ends := range map[string]struct {
		err     error
		letters int
		parks   bool // before
	}{
		"for good":    {classify.Permanent(errors.New("wrong")), 1, false},
		"discarded":   {classify.Discard(errors.New("old")), 0, false},
		"in its turn": {errDown, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			databases.Each(t, func(t *testing.T, kind databases.Database, address string) {
				p := ordered(t, kind.Open(t, address), func(msg *message.Message, times int) error {
					if msg.UUID == "a1" && times < 4 && msg.Metadata.Get(poison.KeyRedriveCount) == "" {
						return ends.err
					}
					return nil
				})
				p.live("a1", 0, 0)
				p.live("a2", 1, 0)
				p.drain()
				seen := "a1 a2"
				if ends.parks {
					seen = "a1 a1 a1 a2"
				}
				p.want(seen, ends.letters, 0)
				p.live("a1", 0, 0)
				p.want(seen, ends.letters, 0)
				p.live("a1", 2, 1)
				p.want(seen+" a1", ends.letters, 0)
			})
		})
	}
}

// Feature R13: with Hold a message that fails for good lets its key stand until a person decides what becomes of it.
func TestOrderedHolds(t *testing.T) {
	for name, decides := range map[string]struct {
		parked.Deciding
		seen        string
		letters     int
		description string
	}{
		"release":     {parked.Deciding{What: parked.Release}, "a1 b1 a1 a2 a3", 0, ""},
		"skip":        {parked.Deciding{What: parked.Skip}, "a1 b1 a2 a3", 1, "ann decided to skip it: INC-7"},
		"discard":     {parked.Deciding{What: parked.Discard}, "a1 b1 a2 a3", 0, ""},
		"discard all": {parked.Deciding{What: parked.Discard, All: true}, "a1 b1", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			databases.Each(t, func(t *testing.T, kind databases.Database, address string) {
				db := kind.Open(t, address)
				p := ordered(t, db, func(msg *message.Message, times int) error {
					if msg.UUID == "a1" && times < 2 {
						return classify.Permanent(errors.New("wrong"))
					}
					return nil
				}, func(c *spillway.Config) { c.Ordered.Hold = true })
				for at, id := range []string{"a1", "a2", "b1", "a3"} {
					p.live(id, int64(at), 0)
				}
				p.drain()
				p.want("a1 b1", 0, 3)
				all := testkit.Must(parked.List(t.Context(), db, "shop", 10))
				testkit.Require(t, len(all) == 1 && all[0].Held && all[0].Messages == 3, "%+v", all)
				decision := decides.Deciding // a copy: the databases run beside each other
				decision.By, decision.Why = "ann", "INC-7"
				decision.Record = func(*sql.Tx, string, parked.Parked, int) error { return nil }
				testkit.Must(parked.Decide(t.Context(), db, "shop", all[0].Seq, decision))
				p.again()
				p.want(decides.seen, decides.letters, 0)
				for at, id := range []string{"a1", "a2", "b1", "a3"} { // again, as after a crash: all are settled
					p.live(id, int64(at), 0)
				}
				p.want(decides.seen, decides.letters, 0)
				var description string
				_ = db.QueryRow(`SELECT description FROM spillway_dead_letters`).Scan(&description)
				testkit.Check(t, description == decides.description, "the letter says %q", description)
			})
		})
	}
}

// Feature R13: an invalid message is dead-lettered at once, and so is one without a key: nothing stands for them.
func TestOrderedHoldsNot(t *testing.T) {
	p := ordered(t, databases.SQLite.New(t), func(msg *message.Message, _ int) error {
		if msg.UUID == "a2" {
			return nil
		}
		return classify.Invalid(errors.New("no amount"))
	}, func(c *spillway.Config) { c.Ordered.Hold = true })
	p.live("a1", 0, 0)
	p.live("a2", 1, 0)
	p.want("a1 a2", 1, 0)
}

// Feature R13: a handler that acks its message itself is refused: nothing of it stays but a letter that says so.
func TestOrderedRefusesEarlyAck(t *testing.T) {
	p := ordered(t, databases.SQLite.New(t), func(msg *message.Message, _ int) error {
		msg.Ack()
		return nil
	})
	p.live("a1", 0, 0)
	p.want("a1", 1, 0)
	var description string
	err := p.db.QueryRow(`SELECT description FROM spillway_dead_letters`).Scan(&description)
	testkit.Check(t, err == nil && strings.Contains(description, "Return nil instead"), "%q: %v", description, err)
	var applied int
	err = p.db.QueryRow(`SELECT count(*) FROM spillway_keys WHERE expires_at IS NULL`).Scan(&applied)
	testkit.Check(t, err == nil && applied == 0, "%d keys are applied: %v", applied, err)
}

// Feature R13: a message whose place is not known is requeued, and not handled out of order.
func TestOrderedCopy(t *testing.T) {
	p := ordered(t, databases.SQLite.New(t), func(*message.Message, int) error { return nil })
	msg := message.NewMessage("a1", nil)
	msg.SetContext(t.Context())
	p.out <- msg
	select {
	case <-msg.Nacked():
	case <-msg.Acked():
		t.Error("it is acked")
	}
	p.want("", 0, 0)
}

// Feature R13: a channel without Ordered says that messages wait in the order of their key.
func TestParkedLeft(t *testing.T) {
	db := databases.SQLite.New(t)
	p := ordered(t, db, func(*message.Message, int) error { return errDown }, func(c *spillway.Config) { c.Ordered.Delays = []time.Duration{time.Hour} })
	p.live("a1", 0, 0)
	p.want("a1", 0, 1)
	log := &testkit.Log{}
	channel := testkit.Must(spillway.New(t.Context(), spillway.Config{Service: "shop", DB: db, Logger: log}))
	testkit.RunRouter(t, watermill.NopLogger{}, func(router *message.Router) {
		channel.Attach(router)
		router.AddConsumerHandler("billing", "orders", gochannel.NewGoChannel(gochannel.Config{}, nil), func(*message.Message) error { return nil })
	})
	testkit.Check(t, len(log.Lines(watermill.ErrorLogLevel, "Messages wait in the order of their key")) == 1,
		"nothing is said of the message that waits")
}

// Feature R13: with pgxstore, whose handlers begin before the key is known, a settled key has no effect either.
func TestOrderedWithPgxstore(t *testing.T) {
	db := databases.Postgres.New(t)
	testkit.Must(db.Exec(`CREATE TABLE effects (n BIGSERIAL, id TEXT)`))
	keys := testkit.Must(pgxstore.New(t.Context(), db, "shop"))
	p := ordered(t, db, func(msg *message.Message, times int) error {
		if msg.UUID == "a1" && times == 1 {
			return classify.Permanent(errors.New("wrong"))
		}
		_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), `INSERT INTO effects (id) VALUES ($1)`, msg.UUID)
		return err
	}, func(c *spillway.Config) { c.Idempotency = keys })
	for _, delivery := range []struct {
		id       string
		position int64
		redrives int
		effects  int
	}{{"a1", 0, 0, 0}, {"a2", 1, 0, 1}, {"a1", 0, 0, 1}, {"a2", 1, 0, 1}, {"a1", 2, 1, 2}} {
		testkit.Check(t, p.live(delivery.id, delivery.position, delivery.redrives), "%+v is nacked", delivery)
		n := p.count("effects")
		testkit.Check(t, n == delivery.effects, "%+v: %d effects", delivery, n)
	}
}
