package spillway

import (
	"context"
	"errors"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// openStores makes in Config.DB the stores that the config does not give. It returns the dead-letter store if it made one.
func (c *Config) openStores(ctx context.Context) (*letters.Store, error) {
	if c.DB == nil {
		if c.Service != "" {
			return nil, errors.New("Config.Service is set without Config.DB: it names the service in the tables of that database; " +
				"set Config.DB, or give the Service to the stores that you make")
		}
		return nil, nil
	}
	if c.Idempotency == nil {
		store, err := idempotency.NewStore(ctx, c.DB, idempotency.StoreConfig{Service: c.Service})
		if err != nil {
			return nil, err
		}
		c.Idempotency = store
	}
	if c.Publisher != nil {
		return nil, nil
	}
	store, err := letters.NewStore(ctx, c.DB, letters.StoreConfig{Service: c.Service})
	if err != nil {
		return nil, err
	}
	c.Publisher = store
	return store, nil
}
