package command

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/connect"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/api"
	"github.com/watermill-spillway/spillway/internal/operate/apiclient"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// lettersTables begin the components of the store of dead letters.
const lettersTables = "letter"

// database opens the database of the settings, once.
func (a *app) database(ctx context.Context) (*sql.DB, error) {
	if a.settings.url != "" {
		return nil, wrong("this works on the database itself, and an API does not do it: give --db")
	}
	db, err := connect.Database(ctx, a.settings.db)
	if err != nil {
		if errors.Is(err, connect.ErrAddress) {
			err = coded{err, exitWrong}
		}
		return nil, err
	}
	a.closers = append(a.closers, db.Close)
	return db, nil
}

// store opens the dead letters of the service.
func (a *app) store(ctx context.Context) (*letters.Store, error) {
	db, err := a.database(ctx)
	if err != nil {
		return nil, err
	}
	return a.storeOn(ctx, db)
}

func (a *app) storeOn(ctx context.Context, db *sql.DB) (*letters.Store, error) {
	if err := connect.Require(ctx, db, lettersTables); err != nil {
		return nil, err
	}
	hidden, err := connect.Hidden(ctx, db)
	if err != nil {
		return nil, err
	}
	if len(hidden) > 0 {
		a.screen.Note("row-level security may hide letters from this role: redrive doctor names the tables")
	}
	if err := a.knownService(ctx, db); err != nil {
		return nil, err
	}
	return a.newStore(ctx, db)
}

// knownService returns an error for a service without letters, if others have some: a name that is misspelt finds
// nothing.
func (a *app) knownService(ctx context.Context, db *sql.DB) error {
	services, err := connect.Services(ctx, db)
	if err != nil {
		return err
	}
	var named []string
	for _, name := range services {
		if name == a.settings.service {
			return nil
		}
		if name != "" {
			named = append(named, name)
		}
	}
	switch {
	case len(services) == 0, a.settings.service != "" && len(services) == connect.MostServices: // it may be behind them
		return nil
	case len(named) == 0:
		return coded{errors.New("--service is " + quoted(a.settings.service) + ", and the letters here belong to no " +
			"service: leave it out"), exitNone}
	case a.settings.service == "":
		return wrong("--service is empty: name the owner of the letters, or set SPILLWAY_SERVICE; here are %s",
			strings.Join(named, ", "))
	}
	return none("the service %q has no letters here; these services have: %s", a.settings.service,
		strings.Join(named, ", "))
}

func quoted(s string) string { return `"` + s + `"` }

// emptyStore opens the dead letters of a service that may have none.
func (a *app) emptyStore(ctx context.Context) (*letters.Store, error) {
	db, err := a.database(ctx)
	if err == nil {
		err = connect.Require(ctx, db, lettersTables)
	}
	if err != nil {
		return nil, err
	}
	return a.newStore(ctx, db)
}

// brokerOf opens the broker of an address, or that of the settings.
func (a *app) brokerOf(ctx context.Context, address string) (*connect.Broker, error) {
	if address == "" {
		address = a.settings.broker
	}
	broker, err := connect.Open(ctx, address, a.database, a.logger())
	if err != nil {
		return nil, err
	}
	a.closers = append(a.closers, broker.Close)
	return broker, nil
}

// desk is where a person works: the API of a console, or the same API in this process, on a database. Service says whose
// letters they are, and what the person may do.
type desk struct {
	*apiclient.Client
	Service operate.ServiceData
}

// desk opens the letters of the service, and its campaigns if there are some.
func (a *app) desk(ctx context.Context) (*desk, error) {
	if a.settings.url != "" {
		return a.remote(ctx)
	}
	all, store, err := a.openCampaigns(ctx, false, campaigns.Config{})
	if err != nil && !errors.Is(err, errNoCampaign) {
		return nil, err
	}
	return a.here(store, all), nil
}

// here is the API on the letters of a database, in this process.
func (a *app) here(store *letters.Store, all *campaigns.Campaigns) *desk {
	return a.local(operate.Desk{Store: store, Campaigns: all})
}

func (a *app) local(on operate.Desk) *desk {
	on.Codec = operate.NewCodec("--decode", a.decoder(), nil, a.logger())
	on.Masks = a.privacy
	return &desk{Client: apiclient.Here(api.Local(&on, a.settings.by), "redrive "+version())}
}

// campaignDesk opens the letters and the campaigns of the service. Looking makes no tables; create makes them if they
// are not there.
func (a *app) campaignDesk(ctx context.Context, create bool, config campaigns.Config) (*desk, error) {
	if a.settings.url != "" {
		return a.remote(ctx)
	}
	all, store, err := a.openCampaigns(ctx, create, config)
	if err != nil {
		return nil, err
	}
	return a.here(store, all), nil
}

// sharedDesk opens what the instances share beside the letters, sequences and outages, and the record, if there are
// letters.
func (a *app) sharedDesk(ctx context.Context) (*desk, error) {
	if a.settings.url != "" {
		return a.remote(ctx)
	}
	db, err := a.database(ctx)
	if err != nil {
		return nil, err
	}
	on := operate.Desk{DB: db, Service: a.settings.service}
	if err = connect.Require(ctx, db, lettersTables); err == nil {
		on.Store, err = a.newStore(ctx, db)
	}
	if err != nil && !errors.Is(err, connect.ErrMissing) {
		return nil, err
	}
	return a.local(on), nil
}

// apiFlags are what errors call the settings of an API.
var apiFlags = apiclient.Names{URL: "--url", TokenFile: "--token-file"}

// remote opens the API of the settings. Its service is the service.
func (a *app) remote(ctx context.Context) (*desk, error) {
	s := &a.settings
	for name, why := range map[string]string{
		"by":   "the API knows who you are by your token, and writes that down",
		"keys": "the server opens sealed letters, if it has their keys; --db opens them here",
	} {
		if s.given(name) {
			return nil, wrong("--%s is not for an API: %s", name, why)
		}
	}
	client, err := apiclient.New(apiclient.Config{URL: s.url, TokenFile: s.tokenFile, CA: s.ca, Names: apiFlags,
		Program: "redrive " + version(), MostRead: 64 << 20})
	d := &desk{Client: client}
	if err == nil {
		a.closers = append(a.closers, d.Close)
		d.Service, err = client.Open(ctx)
	}
	if errors.Is(err, apiclient.ErrConfig) {
		err = coded{err, exitWrong}
	}
	if err != nil {
		return nil, err
	}
	if s.service != "" && s.service != d.Service.Service && s.given("service") {
		return nil, wrong("--service is %q, and this API has the letters of %q: leave it out, or choose another --url",
			s.service, d.Service.Service)
	}
	s.service = d.Service.Service
	return d, nil
}

var errNoCampaign = none("there is no campaign: none was ever started in this database")

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
			return nil, store, errNoCampaign
		}
	}
	config.Logger = a.logger()
	all, err := campaigns.New(ctx, store, config)
	return all, store, err
}
