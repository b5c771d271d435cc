package notify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/chain/lifecycle"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/observe/notify/internal/ledger"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// needed has a channel say so if nothing sends.
type needed = lifecycle.Needed

// Notifier sends notices about a channel. It is safe for concurrent use. It needs no closing: what it does begins and
// ends with the router that has its Plugin.
type Notifier struct {
	needed
	config   Config
	instance string // the name of the process in notices
	pace     pace
	late     *logging.Late // nil with a logger of the configuration
	pending  *pending
	life     *lifecycle.Lifecycle

	observes atomic.Bool

	mu        sync.Mutex
	channel   *spillway.Channel
	campaigns []*campaigns.Campaigns
	parked    *sequence.Table // nil if nothing is parked in the order of keys
	shared    *ledger.Ledger  // by which instances agree; in memory without a database
	local     *ledger.Ledger  // of this process, for what must be told while the database is away
	running   *running
}

// New returns a Notifier. It returns an error that names the field of config that is wrong.
func New(config Config) (*Notifier, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.Sinks, config.Kinds = slices.Clone(config.Sinks), slices.Clone(config.Kinds)
	host, _ := os.Hostname() // without a name there is the process's id
	n := &Notifier{config: config, instance: fmt.Sprintf("%s/%d", host, os.Getpid()), pace: paces,
		pending: newPending()}
	n.life = lifecycle.New(n.start, n.stop)
	return n, nil
}

// Watch tells the Notifier which channel it looks at: the letters that wait, the keys that wait in order, the
// breakers, the stores; and which campaigns, for notices of kind CampaignStopped. With a database Watch makes the table
// spillway_notices if that is missing, within ctx. It is called once, after spillway.New. The Notifier must be in the
// Config.Observers of the channel.
func (n *Notifier) Watch(ctx context.Context, channel *spillway.Channel, all ...*campaigns.Campaigns) error {
	switch {
	case ctx == nil:
		return errors.New("notify: Watch: the context is nil: use context.Background() if there is no other")
	case safecall.IsNil(channel):
		return errors.New("notify: Watch: the Channel is nil: check the error of spillway.New")
	case slices.Contains(all, nil):
		return errors.New("notify: Watch: the Campaigns are nil: check the error of campaigns.New, or leave them out")
	}
	if !n.observes.Load() {
		return errors.New("notify: Watch: no Channel has the Notifier: name it in Config.Observers, and then call spillway.New " +
			"and Watch")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.channel != nil {
		return errors.New("notify: Watch was called before: it takes one channel, and another channel needs a Notifier of its own")
	}
	rules := ledger.Rules{Window: n.config.Window, Settle: n.pace.settle, Lease: n.pace.lease,
		MaxNew: n.pace.most, Lasts: lasts, Many: string(ManyNotices)}
	n.local = ledger.InMemory(n.instance, rules)
	n.shared = n.local
	if n.config.DB != nil {
		shared, err := ledger.InTable(ctx, n.config.DB, n.config.Service, n.holder(), rules)
		if err != nil {
			return err
		}
		n.shared = shared
	}
	parked, err := sequence.TableOf(ctx, channel)
	if err != nil {
		return fmt.Errorf("notify: Watch: %w", err)
	}
	n.channel, n.campaigns, n.parked = channel, all, parked
	return nil
}

// Plugin sends notices for as long as handlers of the router run: router.AddPlugin(notifier.Plugin). What happens
// before and after is kept, and sent when handlers run again.
func (n *Notifier) Plugin(router *message.Router) error {
	if router == nil {
		return errors.New("notify: Plugin: the router is nil: check the error of message.NewRouter")
	}
	n.mu.Lock()
	watches := n.channel != nil
	if n.config.Logger == nil {
		n.late = logging.NewLate()
		n.config.Logger = n.late
	}
	if n.late != nil {
		n.late.Bind(router.Logger())
	}
	n.mu.Unlock()
	if !watches {
		return errors.New("notify: Plugin: the Notifier has no channel: call Watch before the router runs")
	}
	lifecycle.Added(&n.needed)
	return n.life.Plugin(router)
}

func (n *Notifier) logger() watermill.LoggerAdapter {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.config.Logger == nil {
		return watermill.NopLogger{}
	}
	n.config.Logger = logging.Wrap(n.config.Logger, nil)
	return n.config.Logger
}
