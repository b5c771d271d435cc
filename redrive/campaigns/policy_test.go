package campaigns_test

import (
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// customers is a policy for the letters of package fixture.
func customers(change ...func(*campaigns.Policy)) campaigns.Policy {
	p := campaigns.Policy{Name: "customers", Filter: letters.Filter{Reasons: []string{"no_such_customer"}}, Window: time.Hour, PerDay: 3,
		Max: 1000, Rate: 10000, Canary: 2}
	for _, f := range change {
		f(&p)
	}
	return p
}

// standing is config with policies.
func standing(policies ...campaigns.Policy) campaigns.Config {
	c := config
	if c.Policies = policies; len(policies) == 0 {
		c.Policies = []campaigns.Policy{customers()}
	}
	return c
}

// policies is a service with policies, whose decisions the test asks for, and a worker without them.
type policies struct {
	*testing.T
	db    *sql.DB
	store *letters.Store
	all   *campaigns.Campaigns
	out   *fixture.Outbox
}

func withPolicies(t *testing.T, d fixture.Database, c campaigns.Config) *policies {
	p := &policies{T: t, db: d.Create(t)(), out: &fixture.Outbox{}}
	p.store = fixture.StoreOn(t, p.db)
	p.all = open(t, p.store, c)
	return p
}

// look lets the policies decide, and returns all campaigns, the newest first.
func (p *policies) look() []campaigns.Campaign {
	p.Helper()
	testkit.NoError(p, p.all.Look(p.Context()))
	return testkit.Must(p.all.List(p.Context(), campaigns.List{}))
}

// wait lets time pass for the campaigns that there are.
func (p *policies) wait(d time.Duration) {
	for _, column := range []string{"created_at", "ended_at"} {
		testkit.Must(p.db.Exec(fmt.Sprintf(`UPDATE spillway_campaigns SET %s = %s - %d WHERE %s > 0`, column, column, d.Microseconds(), column)))
	}
}

// end waits until a campaign has finished and its letters are known to have succeeded, which the service says.
func (p *policies) end(id string) {
	p.Helper()
	testkit.Eventually(p, "the campaign ends", func() bool {
		testkit.Must(p.store.MarkAll(p.Context(), fixture.Status(letters.StatusRedriven), letters.StatusSucceeded, letters.Act{By: "billing"}))
		c := testkit.Must(p.all.Get(p.Context(), id))
		return c.State == campaigns.Finished && c.NotHeard == 0
	})
}

func (p *policies) blocked() []inside.Stop {
	p.Helper()
	return testkit.Must(hidden.Of(p.all).Policies(p.Context())).Policies[0].Blocked
}

// Feature V14: a policy redrives a cause, the canary first. The next campaign waits for the window and all outcomes.
func TestPolicy(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		p := withPolicies(t, d, standing())
		run(t, open(t, p.store, config), p.out, quick)
		testkit.Equal(t, "campaigns without a letter", len(p.look()), 0)
		fixture.Publish(t, p.store, "orders.dlq", fixture.Several(10)...)
		found := p.look()
		testkit.Require(t, len(found) == 1 && found[0].Policy == "customers" && found[0].Request.By == "policy customers" && found[0].Selected == 10 &&
			strings.Contains(found[0].Request.Reason, "reason no_such_customer"), "%+v", found)
		id := found[0].ID
		reach(t, p.all, id, campaigns.Canary)
		testkit.Must(p.db.Exec(`UPDATE spillway_campaigns SET canary_at = 1`))
		wantIDs(t, p.out, 2)
		p.end(id)
		wantIDs(t, p.out, 10)

		fixture.Publish(t, p.store, "orders.dlq", fixture.Letter("id-90", "{}"))
		testkit.Equal(t, "campaigns in one window", len(p.look()), 1)
		p.wait(time.Hour)
		found = p.look()
		testkit.Require(t, len(found) == 2 && found[0].Selected == 1, "%+v", found)
		reach(t, p.all, found[0].ID, campaigns.Finished)
		fixture.Publish(t, p.store, "orders.dlq", fixture.Letter("id-91", "{}"))
		p.wait(2 * time.Hour)
		testkit.Equal(t, "campaigns while nothing is known of the last one", len(p.look()), 2)
		p.end(found[0].ID)
		testkit.Equal(t, "campaigns when it is known", len(p.look()), 3)
		testkit.Equal(t, "causes are blocked", len(p.blocked()), 0)
	})
}

// Feature V14, promise P6: a letter that a redrive brought back is never a policy's, whatever was lost on the way.
func TestPolicy_neverAgain(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		p := withPolicies(t, d, standing())
		sameCause := func(l *poison.Letter) { l.Failure.Description = "customer id-0 is unknown" }
		back := func(id string) bool { return id == "id-3" || id == "id-7" }
		p.out.Before = func(_ string, msg *message.Message) error {
			if !back(msg.UUID) {
				return nil
			}
			l := poison.Read(msg)
			l.Failure = poison.Read(fixture.Letter(msg.UUID, "{}")).Failure // the same cause
			if msg.UUID == "id-7" {
				return p.store.Publish("orders.dlq", fixture.Letter("id-7", `{"of":"another program, which keeps no metadata"}`))
			}
			l.Original.UUID = "id-77" // the message lost its id
			return p.store.Publish("orders.dlq", l.Encode())
		}
		run(t, open(t, p.store, config), p.out, quick)
		fixture.Publish(t, p.store, "orders.dlq", fixture.Several(20)...)
		person := reach(t, p.all, start(t, p.all, request).ID, campaigns.Finished)
		testkit.Equal(t, "letters of the person's campaign", person.Redriven, 20)
		fixture.WantCount(t, p.store, letters.Filter{}, 2)
		testkit.Equal(t, "campaigns", len(p.look()), 1)
		put := testkit.Must(p.store.MarkAll(t.Context(), letters.Filter{IDs: []string{"id-1"}, Statuses: []letters.Status{letters.StatusRedriven}},
			letters.StatusWaiting, letters.Act{By: "ann"}))
		testkit.Equal(t, "letters that a person put back", put, 1)
		fixture.Publish(t, p.store, "orders.dlq", fixture.Letter("id-99", "{}"), fixture.Letter("", "{}", sameCause),
			fixture.Letter("id-88", "{}", fixture.RedrivenTimes(1)))
		found := p.look()
		left := campaigns.LeftOut{Why: campaigns.CameBack, Letters: 4}
		testkit.Require(t, len(found) == 2 && found[0].Selected == 2 && len(found[0].LeftOut) == 1 && found[0].LeftOut[0] == left, "%+v", found[0])
		p.end(found[0].ID)
		c := testkit.Must(p.all.Get(t.Context(), found[0].ID))
		testkit.Check(t, c.Redriven == 1 && c.Refused == 1 && p.out.IDs()["id-99"] == 1, "%+v", c)
	})
}

// Feature V14, promise P6: a cause of which too many failed again is blocked until a person releases it, on record.
func TestPolicy_blocks(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		for _, by := range []string{"policy customers", "ann"} {
			if by == "ann" && d.Name != fixture.SQLite.Name { // the same statements
				continue
			}
			log := &testkit.Log{}
			c := standing()
			c.Logger = log
			p := withPolicies(t, d, c)
			p.out = failing(t, p.store, func(id string) bool { return id != "id-99" })
			plain := config
			plain.Logger = log
			run(t, open(t, p.store, plain), p.out, quick)
			fixture.Publish(t, p.store, "orders.dlq", fixture.Several(5)...)
			var one campaigns.Campaign
			if by == "ann" {
				one = reach(t, p.all, start(t, p.all, request).ID, campaigns.Finished)
			} else {
				one = reach(t, p.all, p.look()[0].ID, campaigns.Paused)
				testkit.Eventually(t, "the cause is blocked, before a policy looks again", func() bool { return len(p.blocked()) == 1 })
				testkit.Eventually(t, "the campaign is finished, though it stops again where two more are heard of before its end", func() bool {
					if one = testkit.Must(p.all.Get(t.Context(), one.ID)); one.State == campaigns.Paused {
						testkit.Must(p.all.Resume(t.Context(), one.ID, act))
					}
					return one.State == campaigns.Finished
				})
			}
			p.wait(2 * time.Hour)
			fixture.Publish(t, p.store, "orders.dlq", fixture.Letter("id-99", "{}"))
			testkit.Equal(t, "campaigns", len(p.look()), 1)
			stops := p.blocked()
			testkit.Require(t, len(stops) == 1 && stops[0].By == campaigns.ByItself && strings.Contains(stops[0].Reason, one.ID) && len(stops[0].Cause) > 8,
				"%s: %+v", by, stops)
			testkit.Check(t, log.Has("A standing policy leaves a cause", "policy", "customers"), "%s: no line says it", by)
			summary := testkit.Must(hidden.Of(p.all).Summary(t.Context()))
			testkit.Equal(t, "causes in the summary", summary.Blocked, 1)
			released, err := hidden.Of(p.all).ReleaseCause(t.Context(), "customers", stops[0].Cause, "bob", "INC-8: imported", "")
			testkit.Check(t, released && err == nil, "%v %v", released, err)
			var found []campaigns.Campaign
			testkit.Eventually(t, "it goes on, when it has heard of all letters of the first", func() bool {
				found = p.look()
				return len(found) > 1
			})
			testkit.Require(t, len(found) == 2 && found[0].Selected == 1, "%s: %+v", by, found)
			p.end(found[0].ID)
			record := testkit.Must(p.store.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventPolicy}}))
			testkit.Check(t, len(record) == 2 && strings.HasPrefix(record[0].Detail, "blocked: the policy customers, cause ") && record[1].By == "bob" &&
				record[1].Reason == "INC-8: imported" && strings.HasPrefix(record[1].Detail, "released: "), "%s: %+v", by, record)
			testkit.Equal(t, "causes are blocked", len(p.blocked()), 0)
		}
	})
}

// Feature V14: a campaign that a person cancels blocks its cause, and one of which not all is known after a day.
func TestPolicy_blocksWhatIsNotKnown(t *testing.T) {
	for name, spoil := range map[string]func(p *policies, id string){
		"was cancelled": func(p *policies, id string) { testkit.Must(p.all.Cancel(p.Context(), id, act)) },
		"were not heard of": func(p *policies, id string) {
			run(p, open(p, p.store, config), p.out, quick)
			reach(p, p.all, id, campaigns.Finished)
		},
	} {
		p := withPolicies(t, fixture.SQLite, standing(customers(func(p *campaigns.Policy) { p.Canary = 10 })))
		fixture.Publish(t, p.store, "orders.dlq", fixture.Several(5)...)
		spoil(p, p.look()[0].ID)
		fixture.Publish(t, p.store, "orders.dlq", fixture.Letter("id-99", "{}"))
		p.wait(25 * time.Hour)
		testkit.Equal(t, name+": campaigns", len(p.look()), 1)
		stops := p.blocked()
		testkit.Require(t, len(stops) == 1 && strings.HasSuffix(stops[0].Reason, name), "%s: %+v", name, stops)
		testkit.Must(hidden.Of(p.all).ReleaseCause(t.Context(), "customers", stops[0].Cause, "bob", "INC-8", ""))
		testkit.Equal(t, name+": campaigns after the release", len(p.look()), 2)
	}
}

// Feature V14: of three instances that decide at once one starts each campaign, and all together PerDay a day.
func TestPolicy_instances(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		p := withPolicies(t, d, standing())
		for i := range 5 {
			for range 2 {
				fixture.Publish(t, p.store, "orders.dlq", fixture.Letter(fmt.Sprint("id-", i), "{}", fixture.By(fmt.Sprint("handler-", i))))
			}
		}
		instances := []*campaigns.Campaigns{p.all, open(t, p.store, standing()), open(t, p.store, standing())}
		decide := func() []campaigns.Campaign {
			var deciding sync.WaitGroup
			for _, all := range instances {
				deciding.Go(func() {
					err := all.Look(t.Context())
					testkit.Check(t, err == nil, "%v", err)
				})
			}
			deciding.Wait()
			return testkit.Must(p.all.List(t.Context(), campaigns.List{}))
		}
		found := decide()
		testkit.Equal(t, "campaigns of a day", len(found), 3)
		causes := map[string]bool{}
		for _, c := range found {
			causes[c.Request.Filter.Causes[0]] = true
			testkit.Check(t, c.Selected == 1, "%+v", c)
		}
		testkit.Equal(t, "causes", len(causes), 3)
		testkit.Equal(t, "campaigns of a day, asked again", len(decide()), 3)
		p.wait(24*time.Hour + time.Minute)
		testkit.Equal(t, "campaigns of the next day", len(decide()), 5)
	})
}

// Feature V14: processes that are killed when a policy has decided leave one campaign, and another goes on with it.
func TestPolicy_killed(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		store := fixture.StoreOn(t, db)
		all := open(t, store, standing())
		fixture.Publish(t, store, "orders.dlq", fixture.Several(60)...)
		var killed sync.WaitGroup
		for range 3 {
			killed.Go(func() {
				child.Killed(t, order{Kill: killDecided, Driver: child.Driver(d.Name), Address: address})
			})
		}
		killed.Wait()
		testkit.Must(db.Exec(`UPDATE spillway_campaigns SET leased_until = 0`)) // as if half a minute had gone by
		testkit.NoError(t, all.Look(t.Context()))
		found := testkit.Must(all.List(t.Context(), campaigns.List{}))
		testkit.Require(t, len(found) == 1, "%+v", found)
		out := &fixture.Outbox{}
		run(t, open(t, store, config), out, quick)
		p := &policies{T: t, db: db, store: store, all: all, out: out}
		p.end(found[0].ID)
		wantIDs(t, out, 60)
	})
}

// Feature V14: a freeze pauses what runs and holds for all instances, also against Approve and Resume.
func TestPolicy_frozen(t *testing.T) {
	for _, name := range []string{"", "customers"} {
		c := standing()
		c.ApproveOver = 10
		p := withPolicies(t, fixture.SQLite, c)
		freeze := func(name string, frozen bool) (bool, error) {
			return hidden.Of(p.all).FreezePolicies(t.Context(), name, frozen, "ann", "INC-7: freeze", "")
		}
		_, err := freeze("other", true)
		testkit.Is(t, err, inside.ErrNoPolicy)
		_, err = hidden.Of(p.all).FreezePolicies(t.Context(), name, true, "ann", "", "")
		testkit.Is(t, err, campaigns.ErrRequest)
		fixture.Publish(t, p.store, "orders.dlq", fixture.Several(20)...)
		fixture.Publish(t, p.store, "orders.dlq", fixture.Letter("a", "{}", fixture.By("shipping")))
		for _, one := range p.look() {
			if one.Selected > 10 { // a policy needs a second person as a person does
				testkit.Equal(t, "the large campaign", one.State, campaigns.Approval)
			}
		}
		changed, err := freeze(name, true)
		testkit.Check(t, changed && err == nil, "%v %v", changed, err)
		changed, err = freeze(name, true)
		testkit.Check(t, !changed && err == nil, "frozen twice: %v %v", changed, err)
		for _, one := range testkit.Must(p.all.List(t.Context(), campaigns.List{})) {
			if one.State == campaigns.Approval {
				testkit.Must(p.all.Approve(t.Context(), one.ID, act))
			} else {
				testkit.Check(t, one.State == campaigns.Paused && one.Why == "INC-7: freeze", "%+v", one)
				testkit.Must(p.all.Resume(t.Context(), one.ID, act))
			}
		}
		stop := run(t, open(t, p.store, config), p.out, quick)
		for _, one := range testkit.Must(p.all.List(t.Context(), campaigns.List{})) {
			one = reach(t, p.all, one.ID, campaigns.Paused)
			testkit.Check(t, one.Why == "the policy is frozen" && one.Redriven == 0, "%+v", one)
		}
		stop()
		fixture.Publish(t, p.store, "orders.dlq", fixture.Letter("b", "{}", fixture.By("mail")))
		testkit.Equal(t, "campaigns while it is frozen", len(p.look()), 2)
		is := testkit.Must(hidden.Of(p.all).Policies(t.Context()))
		testkit.Check(t, (is.Frozen != nil) == (name == "") && (is.Policies[0].Frozen != nil) == (name != "") && is.Policies[0].Today == 2, "%+v", is)
		forgotten, err := hidden.Of(p.all).Forget(t.Context(), true, "INC-7: freeze")
		testkit.Require(t, err == nil && forgotten.Texts > 0, "%+v %v", forgotten, err)
		testkit.Must(hidden.Of(p.all).Forget(t.Context(), false, "INC-7: freeze"))
		testkit.Check(t, len(fixture.Saying(t, p.db, "INC-7: freeze", "spillway_policies")) == 0, "the freeze still says it")
		changed, err = freeze(name, false)
		testkit.Check(t, changed && err == nil, "%v %v", changed, err)
		testkit.Equal(t, "campaigns when it is thawed", len(p.look()), 3)
		record := testkit.Must(p.store.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventPolicy}}))
		testkit.Check(t, len(record) == 2 && strings.HasPrefix(record[0].Detail, "frozen: ") && record[1].By == "ann", "%+v", record)
	}
}

// Feature V14: in quiet hours nothing begins, and a campaign that runs into them waits for their end.
func TestPolicy_quiet(t *testing.T) {
	hours := func(from, to time.Duration) func(*campaigns.Policy) {
		now := time.Now().UTC()
		return func(p *campaigns.Policy) {
			p.Quiet = now.Add(from).Format("15:04") + "-" + now.Add(to).Format("15:04")
		}
	}
	p := withPolicies(t, fixture.SQLite, standing(customers(hours(-time.Hour, 2*time.Hour))))
	fixture.Publish(t, p.store, "orders.dlq", fixture.Several(5)...)
	testkit.Equal(t, "campaigns in quiet hours", len(p.look()), 0)
	loud := open(t, p.store, standing(customers(hours(2*time.Hour, 3*time.Hour))))
	testkit.NoError(t, loud.Look(t.Context()))
	found := testkit.Must(p.all.List(t.Context(), campaigns.List{}))
	testkit.Require(t, len(found) == 1 && found[0].State == campaigns.Running, "%+v", found)
	stop := run(t, p.all, p.out, quick)
	c := reach(t, p.all, found[0].ID, campaigns.Paused)
	testkit.Check(t, c.Redriven == 0 && c.Why == "the quiet hours of the policy" && time.Until(c.ResumeAt) > time.Hour && time.Until(c.ResumeAt) <= 2*time.Hour, "%+v", c)
	stop()
	testkit.Must(p.db.Exec(`UPDATE spillway_campaigns SET resume_at = 1`))
	run(t, loud, p.out, quick)
	p.end(c.ID)
}

// Feature V14: a policy that bounds nothing, or could not work, is refused with the field and what to do.
func TestPolicy_refused(t *testing.T) {
	store := fixture.SQLite.NewStore(t)
	testkit.Must(letters.NewRetention(store, letters.RetentionConfig{Rules: []letters.RetentionRule{
		{Statuses: []letters.Status{letters.StatusWaiting}, OlderThan: 48 * time.Hour}}, Shared: observe.Shared{}}))
	for want, change := range map[string]func(*campaigns.Policy){
		`Name is "": it must have`:           func(p *campaigns.Policy) { p.Name = "" },
		"Filter has no Causes":               func(p *campaigns.Policy) { p.Filter = letters.Filter{Handlers: []string{"billing"}} },
		"Filter has fields beside":           func(p *campaigns.Policy) { p.Filter.Statuses = letters.Statuses() },
		"Filter.Classes has 4, which no":     func(p *campaigns.Policy) { p.Filter.Classes = []classify.Class{classify.ClassDiscard} },
		"Filter: letters: Filter.Reasons":    func(p *campaigns.Policy) { p.Filter.Reasons = make([]string, 501) },
		"Window is 0s: it must be 1m0s":      func(p *campaigns.Policy) { p.Window = 0 },
		"Window is 48h0m0s, and a Retention": func(p *campaigns.Policy) { p.Window = 48 * time.Hour },
		"PerDay is 0: bound the campaigns":   func(p *campaigns.Policy) { p.PerDay = 0 },
		"Max is 0: bound the letters":        func(p *campaigns.Policy) { p.Max = 0 },
		"Rate is 0: a policy needs a rate":   func(p *campaigns.Policy) { p.Rate = 0 },
		"Canary is 0: a policy needs":        func(p *campaigns.Policy) { p.Canary = 0 },
		"Canary is 2: a policy needs":        func(p *campaigns.Policy) { p.Max = 1 },
		"StopAt is 1: it is a share":         func(p *campaigns.Policy) { p.StopAt = 1 },
		`Quiet is "22-6": write it as`:       func(p *campaigns.Policy) { p.Quiet = "22-6" },
	} {
		_, err := campaigns.New(t.Context(), store, standing(customers(change)))
		testkit.Check(t, err != nil && strings.HasPrefix(err.Error(), "campaigns: Config.Policies[0]."+want), "want %s: %v", want, err)
	}
	other := func(f letters.Filter) campaigns.Policy {
		return customers(func(p *campaigns.Policy) { p.Name, p.Filter = "other", f })
	}
	for want, two := range map[string]campaigns.Policy{
		`Policies[1].Name is "customers", as that of Policies[0]`:   customers(),
		"Policies[1].Filter and that of Policies[0] can choose the": other(letters.Filter{Classes: []classify.Class{classify.ClassTransient}}),
	} {
		_, err := campaigns.New(t.Context(), store, standing(customers(), two))
		testkit.Check(t, err != nil && strings.Contains(err.Error(), want), "want %s: %v", want, err)
	}
	_, err := campaigns.New(t.Context(), store, standing(customers(), other(letters.Filter{Reasons: []string{"expired"}})))
	testkit.NoError(t, err)
}
