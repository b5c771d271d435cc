package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// story is what happens to the shop.
type history struct {
	shop  *shop
	watch *watch
}

// fault is something that is wrong for a while: until its alerts have fired.
type fault struct {
	begins, ends string
	begin, end   func(context.Context) error
	alerts       []string
}

func (s *history) play(ctx context.Context, f fault) error {
	s.watch.forget(f.alerts...)
	s.watch.say("fault", f.begins)
	if err := f.begin(ctx); err != nil {
		return fmt.Errorf("%s: %w", f.begins, err)
	}
	if err := s.watch.fire(ctx, f.alerts...); err != nil {
		return fmt.Errorf("%s: %w", f.begins, err)
	}
	if f.end == nil {
		return nil
	}
	s.watch.say("repair", f.ends)
	return f.end(ctx)
}

// together calls functions at the same time. The first error ends the others.
func together(ctx context.Context, calls ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, call := range calls {
		running.Go(func() {
			if err := call(ctx); err != nil {
				cancel(err)
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// beside calls a function while others run, which end with it.
func beside(ctx context.Context, call func(context.Context) error, others ...func(context.Context) error) error {
	ended := errors.New("the call has ended")
	all := append(others, func(ctx context.Context) error {
		if err := call(ctx); err != nil {
			return err
		}
		return ended
	})
	if err := together(ctx, all...); !errors.Is(err, ended) {
		return err
	}
	return nil
}

// plays returns what plays each of these faults.
func (s *history) plays(faults []fault) (calls []func(context.Context) error) {
	for _, f := range faults {
		calls = append(calls, func(ctx context.Context) error { return s.play(ctx, f) })
	}
	return calls
}

// tell lets everything go wrong, and waits until all is well again.
func (s *history) tell(ctx context.Context) error {
	s.watch.say("", "all is well; the rules compare with what was a quarter of an hour ago, which is 15 s here")
	select {
	case <-time.After(20 * time.Second):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	one, two := s.shop.one, s.shop.two
	if err := together(ctx, append(s.plays(append(s.handlers(), s.databases()...)), s.bug)...); err != nil {
		return err
	}
	if err := s.play(ctx, fault{
		"the database is unavailable", "the database is back",
		func(context.Context) error { s.shop.gate.shut.Store(true); return nil },
		func(context.Context) error { s.shop.gate.shut.Store(false); return nil },
		[]string{"SpillwaySourceUnreachable", "SpillwayStoreUnavailable"},
	}); err != nil {
		return err
	}
	if err := s.drain(ctx); err != nil {
		return err
	}
	if err := s.watch.clear(ctx); err != nil {
		return err
	}
	if err := s.play(ctx, fault{
		"no instance can be scraped", "the instances can be scraped",
		func(context.Context) error {
			one.page.unavailable.Store(true)
			two.page.unavailable.Store(true)
			return nil
		},
		func(context.Context) error {
			one.page.unavailable.Store(false)
			two.page.unavailable.Store(false)
			return nil
		},
		[]string{"SpillwayInstanceDown", "SpillwaySeriesAbsent"},
	}); err != nil {
		return err
	}
	return s.watch.clear(ctx)
}

// set returns a function that sets a switch.
func set(to interface{ Store(bool) }, value bool) func(context.Context) error {
	return func(context.Context) error { to.Store(value); return nil }
}

// exec returns a function that runs a statement.
func (s *history) exec(statement string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.shop.db.ExecContext(ctx, statement)
		return err
	}
}

func (s *history) handlers() []fault {
	f, shop := &s.shop.faults, s.shop
	return []fault{
		{"what shipping calls is unavailable", "what shipping calls is back", set(&f.unavailable, true), set(&f.unavailable, false),
			[]string{"SpillwayBreakerOpenTooLong"}},
		{"what the mailer calls fails for 45 % of the calls", "what the mailer calls is well again", set(&f.slow, true),
			set(&f.slow, false), []string{"SpillwayRetryBudgetSpent"}},
		{"the broker refuses messages that come out of a stage", "the broker takes them", set(&f.comeback, true),
			set(&f.comeback, false), []string{"SpillwayStageLate"}},
		{"the broker refuses invoices", "the broker takes invoices", set(&f.invoices, true), set(&f.invoices, false),
			[]string{"SpillwayOutputRefused"}},
		{"a person freezes the reporter", "the person ends the freeze",
			func(context.Context) error { return shop.one.channel.Breaker().Open("reporter", "a deploy") },
			func(context.Context) error { return shop.one.channel.Breaker().Close("reporter") },
			[]string{"SpillwayFrozenTooLong"}},
		{"100 mails are dropped, each for a reason of its own", "",
			func(context.Context) error { return shop.publish("mails", "old", 100) }, nil,
			[]string{"SpillwayLabelsFolded"}},
		{"two parcels end the process again and again", "",
			func(context.Context) error { return shop.publish("parcels", "crash", 2) }, nil,
			[]string{"SpillwayCrashLimitExceeded"}},
	}
}

// databases are faults of tables, and no outage.
func (s *history) databases() []fault {
	return []fault{
		{"the table of letters takes no letter of the mailer", "the table takes them",
			func(ctx context.Context) error {
				return errors.Join(s.exec(`CREATE TRIGGER no_letter BEFORE INSERT ON spillway_dead_letters WHEN CAST(NEW.handler AS TEXT) = 'mailer' BEGIN SELECT RAISE(ABORT, 'no right to insert'); END`)(ctx),
					s.shop.publish("mails", "address", 2))
			},
			s.exec(`DROP TRIGGER no_letter`),
			[]string{"SpillwayPlacementRefused", "SpillwayLetterUnplaced"}},
		{"the service may no longer delete keys", "the service may delete keys",
			s.exec(`CREATE TRIGGER no_purge BEFORE DELETE ON spillway_keys BEGIN SELECT RAISE(ABORT, 'no right to delete'); END`),
			s.exec(`DROP TRIGGER no_purge`),
			[]string{"SpillwayPurgeNotRunning"}},
		{"the only instance with Ordered is gone: it left a message that is due, and one that is held",
			"it is back, and a person releases the held one",
			s.leaveParked, s.exec(`DELETE FROM spillway_parked`),
			[]string{"SpillwaySequenceLate", "SpillwaySequenceHeld"}},
		{"a standing policy left a cause to a person", "a person releases the cause",
			s.exec(`INSERT INTO spillway_policies (service, name, cause, stopped) VALUES (CAST('shop' AS BLOB), 'timeouts', 'c0ffee', 1)`),
			s.exec(`UPDATE spillway_policies SET stopped = 0`), []string{"SpillwayPolicyBlocked"}},
	}
}

// leaveParked parks messages of two keys, as an instance with Ordered does.
func (s *history) leaveParked(ctx context.Context) error {
	store, err := sequence.NewStore(ctx, s.shop.db, "shop")
	if err != nil {
		return err
	}
	for position, key := range []string{"customer-1", "customer-2"} {
		msg := message.NewMessage(watermill.NewUUID(), []byte(`{}`))
		if err := store.Park(ctx, parked.Source{Group: "billing", Topic: "orders"}, &sequence.Row{
			Lane: []byte(key), RecordKey: []byte(key), Position: int64(position),
			Fingerprint: sequence.FingerprintOf(msg),
			SentAt:      time.Now(), Key: keytable.Key{Consumer: "shop/billing", ID: msg.UUID}, Msg: msg,
			Held: key == "customer-2",
		}, 0); err != nil {
			return err
		}
	}
	return nil
}

// bug is a bug in a handler, and a person who redrives too early.
func (s *history) bug(ctx context.Context) error {
	customers := letters.Filter{Reasons: []string{"no_customer"}}
	return s.play(ctx, fault{"billing knows no new customers, and 40 orders are of some", "billing knows new customers",
		func(ctx context.Context) error {
			s.shop.faults.bug.Store(true)
			if err := s.shop.publish("orders", "customer", 40); err != nil {
				return err
			}
			if err := s.watch.fire(ctx, "SpillwayNewCause", "SpillwayLettersArriveFaster",
				"SpillwayOldestLetterTooOld"); err != nil {
				return err
			}
			s.watch.say("fault", "a person redrives before the bug is repaired")
			c, err := s.shop.campaigns.Start(ctx,
				campaigns.Request{Filter: customers, Rate: 40, StopAt: 0.2, StopAfter: 15,
					Act: campaigns.Act{By: "ann", Reason: "it may work now"}})
			if err != nil {
				return err
			}
			if err := s.watch.fire(ctx, "SpillwayRedrivenFailAgain", "SpillwayCampaignStopped"); err != nil {
				return err
			}
			if _, err := s.shop.campaigns.Cancel(ctx, c.ID,
				campaigns.Act{By: "ann", Reason: "it does not work"}); err != nil {
				return err
			}
			s.watch.say("fault", "and once more, where a letter may be redriven once")
			return s.redrive(ctx, redrive.Rules{Filter: customers, MaxRedrives: 1})
		},
		set(&s.shop.faults.bug, false),
		[]string{"SpillwayLettersQuarantined"},
	})
}

// redrive redrives letters by these rules, as the command line does, but counted.
func (s *history) redrive(ctx context.Context, rules redrive.Rules) error {
	rules.Allow, rules.By, rules.Hooks = topics, "ann", s.shop.one.metrics.Redrives(redrive.Hooks{})
	_, err := redrive.Drain(ctx, s.shop.one.channel.Letters(), open{s.shop.broker}, redrive.DrainConfig{Rules: rules})
	return err
}

// drain discards the letters whose messages are of no use, and redrives all others, now that all is repaired.
func (s *history) drain(ctx context.Context) error {
	s.watch.say("repair", "mails without an address, and parcels that end the process, are discarded; all other letters "+
		"are redriven")
	for {
		useless := letters.Filter{Reasons: []string{"no_address", "max_delivery_count_exceeded"}}
		if _, err := s.shop.one.channel.Letters().MarkAll(ctx, useless, letters.StatusDiscarded,
			letters.Act{By: "ann", Reason: "of no use"}); err != nil {
			return err
		}
		if err := s.redrive(ctx, redrive.Rules{MaxRedrives: 100,
			Filter: letters.Filter{Statuses: []letters.Status{letters.StatusWaiting,
				letters.StatusQuarantined}}}); err != nil {
			return err
		}
		left, err := s.shop.one.channel.Letters().Count(ctx,
			letters.Filter{Statuses: []letters.Status{letters.StatusWaiting}})
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
