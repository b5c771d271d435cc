package command

import (
	"context"
	"errors"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/connect"
	"github.com/watermill-spillway/spillway/cmd/redrive/internal/remote"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// desk is where a person works: on a database, as operate.Desk does, or over the API of a console, as remote.Desk does.
type desk interface {
	Causes(ctx context.Context, f letters.Filter, skip int) ([]letters.Group, error)
	CausesBegin(ctx context.Context, begin string) ([]letters.Group, error)
	Heads(context.Context, letters.Filter) ([]letters.Head, error)
	HeadOf(ctx context.Context, seq int64) (letters.Head, error)
	Whole(ctx context.Context, who operate.Person, seq int64, unmasked bool) (operate.Letter, []letters.Event, error)
	Audit(context.Context, operate.Person, operate.Record) ([]letters.Event, error)

	Freeze(context.Context, letters.Filter) (operate.Selection, error)
	Decide(ctx context.Context, who operate.Person, what operate.Decision, s operate.Selection, id string) (int, error)

	Plan(ctx context.Context, who operate.Person, r campaigns.Request, most int) (plan operate.DryRun, part bool,
		err error)
	Start(context.Context, operate.Person, campaigns.Request) (campaigns.Campaign, error)
	Steer(ctx context.Context, who operate.Person, id string, s operate.Steering, rate float64) (campaigns.Campaign,
		error)
	CampaignByID(ctx context.Context, id string) (campaigns.Campaign, error)
	CampaignsBegin(ctx context.Context, begin string) ([]campaigns.Campaign, error)
	CampaignList(context.Context, campaigns.List) ([]campaigns.Campaign, error)
	CampaignOf(context.Context, operate.Person, campaigns.Campaign) (operate.CampaignRecord, error)

	Policies(context.Context) (inside.Policies, error)
	FreezePolicies(ctx context.Context, who operate.Person, name string, frozen bool) (changed bool, err error)
	ReleaseCause(ctx context.Context, who operate.Person, name, cause string) (released string, err error)

	DecideSequence(ctx context.Context, who operate.Person, seq int64, what sequence.Decision, all bool) (int, error)
	BreakLeases(ctx context.Context, who operate.Person, seqs []int64) (broken []int64, err error)
	Hold(ctx context.Context, who operate.Person, handler string, hold bool) (changed bool, err error)
}

var _, _ desk = (*operate.Desk)(nil), (*remote.Desk)(nil)

// desk opens the letters of the service.
func (a *app) desk(ctx context.Context) (desk, error) {
	if a.settings.url != "" {
		return a.remote(ctx)
	}
	store, err := a.store(ctx)
	if err != nil {
		return nil, err
	}
	return a.deskOn(store, nil), nil
}

// campaignDesk opens the letters and the campaigns of the service. Looking makes no tables; create makes them if they
// are not there.
func (a *app) campaignDesk(ctx context.Context, create bool, config campaigns.Config) (desk, error) {
	if a.settings.url != "" {
		return a.remote(ctx)
	}
	all, store, err := a.openCampaigns(ctx, create, config)
	if err != nil {
		return nil, err
	}
	return a.deskOn(store, all), nil
}

// sequenceDesk opens the keys whose messages wait, and the record.
func (a *app) sequenceDesk(ctx context.Context) (desk, error) {
	if a.settings.url != "" {
		return a.remote(ctx)
	}
	if _, err := a.parkedIn(ctx); err != nil {
		return nil, err
	}
	store, err := a.emptyStore(ctx)
	return a.deskOn(store, nil), err
}

// remote opens the API of the settings. Its service is the service.
func (a *app) remote(ctx context.Context) (*remote.Desk, error) {
	s := &a.settings
	for name, why := range map[string]string{
		"by":   "the API knows who you are by your token, and writes that down",
		"keys": "the server opens sealed letters, if it has their keys; --db opens them here",
	} {
		if s.given(name) {
			return nil, wrong("--%s is not for an API: %s", name, why)
		}
	}
	d, err := remote.Open(ctx, remote.Config{URL: s.url, TokenFile: s.tokenFile, CA: s.ca, Command: version()})
	if errors.Is(err, remote.ErrConfig) {
		err = coded{err, exitWrong}
	}
	if err != nil {
		return nil, err
	}
	a.closers = append(a.closers, d.Close)
	if s.service != "" && s.service != d.Service.Service && s.given("service") {
		return nil, wrong("--service is %q, and this API has the letters of %q: leave it out, or choose another --url",
			s.service, d.Service.Service)
	}
	s.service = d.Service.Service
	return d, nil
}

// deskOn is where this run works on letters of a database, and on campaigns if it has some.
func (a *app) deskOn(store *letters.Store, all *campaigns.Campaigns) *operate.Desk {
	return &operate.Desk{Store: store, Campaigns: all, Masks: a.privacy}
}

// person is who runs the command, and why. A person with the password of the database may do all. A server knows
// better.
func (a *app) person(reason string) operate.Person {
	return operate.Person{Name: a.settings.by, Reason: reason, Right: operate.Approve}
}

// masked is a campaign as it may be shown.
func (a *app) masked(c campaigns.Campaign) campaigns.Campaign { return a.deskOn(nil, nil).Campaign(c) }

// openCampaigns opens the campaigns of a database.
func (a *app) openCampaigns(ctx context.Context, create bool,
	config campaigns.Config) (*campaigns.Campaigns, *letters.Store, error) {
	db, err := a.database(ctx)
	if err != nil {
		return nil, nil, err
	}
	store, err := a.storeOn(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	if err := connect.Require(ctx, db, campaignTables); err != nil {
		if !errors.Is(err, connect.ErrMissing) {
			return nil, nil, err
		}
		if !create {
			return nil, nil, none("there is no campaign: none was ever started in this database")
		}
	}
	config.Logger = a.logger()
	all, err := campaigns.New(ctx, store, config)
	return all, store, err
}
