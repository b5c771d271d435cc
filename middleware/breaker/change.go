package breaker

import (
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
)

// Change is one change of a state.
type Change struct {
	// Handler and Scope name whose state changed. Handler is empty for a freeze of all handlers. Scope is empty without
	// Config.Scope.
	Handler, Scope string
	// From and To are the states.
	From, To circuit.State
	// Reason says why the breaker opened: one of the constants, or what Open was called with.
	Reason string
	// Actor is who froze the handler, if a Store says so.
	Actor string
	// Cause is the latest error that counted. It is nil for a freeze.
	Cause error
	// Waiting is the number of messages that are held now.
	Waiting int
	// Lasted is the time since the state was last Closed.
	Lasted time.Duration
}

// Reasons why a breaker opens.
const (
	// ReasonUnavailable means that errors said so in a row, with no success between them.
	ReasonUnavailable = "unavailable"
	// ReasonShare means that too large a share of messages failed.
	ReasonShare = "share"
	// ReasonNothing means that nothing succeeded for a whole Config.Window.
	ReasonNothing = "nothing_succeeds"
	// ReasonShared means that another instance found an outage.
	ReasonShared = "shared"
)

// tell logs the changes that wait and calls the hook, one at a time and in order. Call it without a lock.
func (b *Breaker) tell() {
	for {
		b.mu.Lock()
		if b.telling || len(b.changes) == 0 {
			b.mu.Unlock()
			return
		}
		change := b.changes[0]
		b.changes, b.telling = b.changes[1:], true
		b.mu.Unlock()
		_ = safecall.Call("the logger", func() error { b.log(change); return nil })
		if b.config.Hooks.OnChange != nil {
			_ = safecall.Call("the logger", func() error {
				change.Cause = b.config.Privacy.Error(change.Cause)
				safecall.Hook(b.config.Logger, "breaker.OnChange", func() { b.config.Hooks.OnChange(change) })
				return nil
			})
		}
		b.mu.Lock()
		b.telling = false
		b.mu.Unlock()
	}
}

func (b *Breaker) log(change Change) {
	fields := logging.Fields{
		logging.Handler: change.Handler, logging.State: string(change.To), logging.Reason: change.Reason,
		"waiting": change.Waiting,
	}
	if change.Handler == "" {
		fields[logging.Handler] = "all"
	}
	if change.Scope != "" {
		fields["scope"] = change.Scope
	}
	if change.Actor != "" {
		fields["actor"] = boundedtext.Text(change.Actor, 200)
	}
	if change.Lasted > 0 {
		fields["lasted"] = change.Lasted.Round(time.Millisecond).String()
	}
	cause := b.cause(change.Cause)
	if cause != nil && !(change.To == circuit.Open && change.From == circuit.Closed) {
		fields[logging.Error] = cause.Error()
	}
	switch {
	case change.To == circuit.Closed:
		eventBreakerClosed.Write(b.config.Logger, nil, fields)
	case change.To == circuit.Frozen:
		eventBreakerFrozen.Write(b.config.Logger, nil, fields)
	case change.To == circuit.Open && change.From == circuit.Ramping:
		eventBreakerReopened.Write(b.config.Logger, nil, fields)
	case change.To == circuit.Open && change.From == circuit.Closed:
		eventBreakerOpened.Write(b.config.Logger, cause, fields)
	default:
		eventBreakerChanged.Write(b.config.Logger, nil, fields)
	}
}

// cause returns an error with the text of err, bounded and masked.
func (b *Breaker) cause(err error) error {
	if err == nil {
		return nil
	}
	return logging.CauseOf(err, b.config.Privacy.Text)
}

// Outages, and the breaker.
var (
	// outage: Repair what the handler calls: docs/breaker.md.
	eventBreakerOpened = logging.ErrorEvent("breaker_opened",
		"The breaker opened: messages are held, uncounted, until a probe succeeds")
	// each: nothing
	eventBreakerReopened = logging.InfoEvent("breaker_reopened",
		"The breaker opened again in the ramp: messages are held, uncounted, until a probe succeeds")
	// each: Close it when the work is done.
	eventBreakerFrozen = logging.InfoEvent("breaker_frozen",
		"The breaker is open by hand: messages are held, uncounted, until it is closed by hand")
	// outage: nothing
	eventBreakerClosed = logging.InfoEvent("breaker_closed", "The breaker closed: messages pass again")
	// each: nothing
	eventBreakerChanged = logging.DebugEvent("breaker_changed", "The breaker has another state")
	// outage: Read docs/breaker.md#one-message-alone.
	eventBreakerHeldByOne = logging.ErrorEvent("breaker_held_by_one",
		"One message alone keeps the breaker open, and has no stage to go to: it is held. If the message is at "+
			"fault, let its error be permanent (classify.Permanent), or give the handler stages")
	// once: Read docs/breaker.md#errors-that-do-not-say-unavailable.
	eventBreakerGaveUp = logging.ErrorEvent("breaker_gave_up",
		"The breaker holds no more messages for an error of unknown meaning: they go on as without a breaker. If the "+
			"error says that something is unavailable, mark it with classify.Unavailable; if the message is at fault, "+
			"with classify.Permanent")
	// stop: nothing; the entries expire
	eventBreakerNotCleared = logging.ErrorEvent("breaker_not_cleared",
		"The store of outages does not answer; outages of this instance count until they expire")
	// outage: Repair the database.
	eventBreakerStoreUnavailable = logging.ErrorEvent("breaker_store_unavailable",
		"The store of outages does not answer; each instance decides for itself until it does")
	// outage: nothing
	eventBreakerStoreBack = logging.InfoEvent("breaker_store_back", "The store of outages answers again")
)
