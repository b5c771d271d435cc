package command

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/connect"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// lettersTables are the components of the store of dead letters.
const lettersTables = "letter*"

// database opens the database of the settings, once.
func (a *app) database(ctx context.Context) (*sql.DB, error) {
	if a.settings.url != "" {
		return nil, wrong("this works on the database itself, and an API does not do it: give --db, or --context with one")
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
