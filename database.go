package spillway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
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
		if made, err = letters.NewStore(ctx, c.DB,
			settings.Shared{Service: c.Service, Seal: c.Queue.Seal}); err != nil {
			return nil, err
		}
		c.Publisher = made
	}
	return made, nil
}

// Schema returns the SQL that makes all tables of Spillway, in the folders postgres, mysql (for MariaDB too) and
// sqlite. Run the files of one folder in the order of their names, with a migration tool or by hand, if the role of
// your programs may not create tables. Each file records its version in the table spillway_schema. A store then finds
// its table, and creates nothing.
//
// Otherwise you need none of them: each store creates its table, or upgrades the table of an earlier release with its
// rows. Versions go forward only: a store refuses a table that a later release has upgraded. Files of later releases
// have higher numbers. An upgrade of a large table is better made by hand, as its file says.
func Schema() fs.FS { return schema.Files() }
