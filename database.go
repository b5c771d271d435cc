package spillway

import (
	"context"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

// openStores makes in Config.DB the stores that the config wants and does not give. It returns the dead-letter store if
// it made one.
func (c *Config) openStores(ctx context.Context) (made *letters.Store, err error) {
	if c.DB == nil {
		if c.Service != "" {
			return nil, errors.New("Config.Service is set without Config.DB: it names the service in the tables of that database; " +
				"set Config.DB, or give the Service to the stores that you make")
		}
		return nil, nil
	}
	if err := database.RequirePrimary(ctx, c.DB); err != nil {
		return nil, fmt.Errorf("Config.DB: %w", err)
	}
	if c.Idempotency == nil {
		if c.Idempotency, err = idempotency.NewStore(ctx, c.DB, c.Service); err != nil {
			return nil, err
		}
	}
	if limit := c.CrashLimit; limit != nil && limit.Store == nil && limit.Delivered == nil {
		if limit.Store, err = crashlimit.NewStore(ctx, c.DB, c.Service); err != nil {
			return nil, err
		}
	}
	if c.Publisher == nil {
		if made, err = letters.NewStore(ctx, c.DB, settings.Shared{Service: c.Service, Seal: c.Queue.Seal}); err != nil {
			return nil, err
		}
		c.Publisher = made
	}
	return made, nil
}
