package spillway

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/chain/lifecycle"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/sqlstore/delayed"
)

// leftTimeout bounds how long the search for messages that no relay moves delays the start.
const leftTimeout = 10 * time.Second

// left looks in DB for messages that wait there since Stages had their store in it.
type left struct {
	db      *sql.DB
	service string
	logger  watermill.LoggerAdapter
}

// reportsLeft reports whether no relay of the channel moves what waits in DB.
func (c *Config) reportsLeft() bool {
	if c.DB == nil || c.Stages == nil || c.Stages.Store == nil {
		return c.DB != nil
	}
	s := c.Stages.Store
	return s.Inside().DB() != c.DB || s.Inside().Service() != c.Service
}

func (l left) plugin() *lifecycle.Lifecycle { return lifecycle.New(l.report, func() {}) }

// report logs each topic to which nothing is published. That does not keep the router from starting.
func (l left) report() error {
	ctx, cancel := context.WithTimeout(context.Background(), leftTimeout)
	defer cancel()
	waiting, err := delayed.Left(ctx, l.db, l.service)
	if err != nil {
		logging.StageSearchFailed.Write(l.logger, err, logging.Fields{"in": "Config.DB"})
	}
	for _, w := range waiting {
		logging.StageRowsLeft.Write(l.logger, errLeft,
			logging.Fields{logging.StageTopic: w.Topic, logging.Messages: w.Messages})
	}
	return nil
}

var errLeft = errors.New("messages in a delay store without a relay")

// parkedLeft looks in DB for messages that wait in the order of their key, for a channel without Ordered.
type parkedLeft left

func (l parkedLeft) plugin() *lifecycle.Lifecycle { return lifecycle.New(l.report, func() {}) }

func (l parkedLeft) report() error {
	ctx, cancel := context.WithTimeout(context.Background(), leftTimeout)
	defer cancel()
	if n, err := sequence.Left(ctx, l.db, l.service); err == nil && n > 0 {
		logging.ParkedLeft.Write(l.logger, errParkedLeft, logging.Fields{logging.Messages: n})
	}
	return nil
}

var errParkedLeft = errors.New("parked messages without Config.Ordered")
