package idempotency

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency/internal/claims"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/timing"
)

func (r *Receiver) step(next chain.Handler) chain.Handler {
	handle := func(c *chain.Call) ([]*message.Message, error) {
		out, o := next(c)
		return out, o.Why
	}
	return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
		out, err := r.handle(c, handle)
		return out, chain.OutcomeOf(err)
	}
}

// handler is what the receiver calls: what lies further in, whose error tells the outcome.
type handler func(*chain.Call) ([]*message.Message, error)

// handle calls next under a claim, or a lease, of the message's key.
func (r *Receiver) handle(c *chain.Call, next handler) ([]*message.Message, error) {
	ctx := c.Msg.Context()
	entry, err := r.entry(ctx, c.Msg)
	if err != nil {
		return nil, err
	}
	if inside, err := nested(ctx, r.store, entry.Key, c.Msg); err != nil {
		return nil, err
	} else if inside {
		if err := r.sameMode(ctx, c.Msg, entry.Key); err != nil {
			return nil, err
		}
		return next(c)
	}
	if at, ok := c.Sequence().(keytable.Placer); ok {
		entry.place = at.Place(c.Msg)
	}
	wait := waitContext(c)
	if r.config.Lease > 0 {
		return r.lease(wait, c, next, entry)
	}
	claim, err := r.claim(wait, c, entry)
	if err != nil {
		return nil, r.unclaimed(c, entry.Key, err)
	}
	return r.settle(c, next, entry, claim)
}

// waitContext is the message's, with what middlewares in between have made of it, such as a time-out: the chain's
// WaitContext knows that of the entry alone. Where it was acked, by an attempt before this one say, its context has
// ended, and the message has not gone away.
func waitContext(c *chain.Call) context.Context {
	if c.Acked() {
		return context.WithoutCancel(c.Msg.Context())
	}
	return c.Msg.Context()
}

// settle ends the claim whatever happens: an error, a panic and runtime.Goexit all leave through the deferred Release.
func (r *Receiver) settle(c *chain.Call, next handler, entry Entry,
	claim Claim) (out []*message.Message, err error) {
	key := entry.Key
	defer func() {
		if released := claim.Release(); released != nil {
			out, err = nil, r.left(key, err, released)
		}
	}()
	if record := claim.Recorded(); record != nil {
		return r.duplicate(c, entry, claim, record)
	}
	s := &scope{store: r.store, entry: entry, msg: c.Msg, claim: claim, outer: scopeOf(c.Msg.Context())}
	out, err = run(c, next, s)
	if c.Nacked() { // who nacks wants the message again, and then it must not be absorbed
		return nil, r.inHandler(key, err)
	}
	if err != nil {
		return nil, r.failed(c, key, claim, err)
	}
	out, err = r.prepare(s, out)
	if err != nil {
		return nil, err
	}
	if err := claim.Commit(encodeOutputs(out)); err != nil {
		return nil, r.unfinished(c, key, err)
	}
	r.applied(c, entry, out)
	return out, nil
}

// duplicate absorbs a message. Hooks and decoding need no lock. The key is applied for good, so a failed release takes
// nothing back.
func (r *Receiver) duplicate(c *chain.Call, entry Entry, claim Claim, record *Record) ([]*message.Message, error) {
	if err := claim.Release(); err != nil {
		eventClaimNotReleased.Write(r.config.Logger, err, fields(entry.Key))
	}
	return r.absorb(c, entry, record)
}

// applied is what follows when a key is applied for good.
func (r *Receiver) applied(c *chain.Call, entry Entry, out []*message.Message) {
	r.keeper.Settled(c)
	r.watch(c, entry, out)
	r.tell("OnApplied", r.config.Hooks.OnApplied, c.Msg.Context(), entry.Key)
}

// run calls the handler with the claim in the message's context, and afterwards puts the context back as it was.
func run(c *chain.Call, next handler, s *scope) ([]*message.Message, error) {
	before := c.Msg.Context()
	c.Msg.SetContext(chain.WithClaim(before, s))
	defer func() {
		s.ended.Store(true)
		c.Msg.SetContext(before)
	}()
	return next(c)
}

const endedByDatabase = "the transaction was rolled back, by the database when a statement failed or by a ROLLBACK of the " +
	"handler's own, and the handler went on and returned nil: what it wrote after that was committed on its own. Return the " +
	"error of a failed statement, and leave the rollback to the receiver"

// unfinished is the error of a commit that failed. If the connection was lost, the outcome is unknown: the message is
// requeued, and absorbed if its key is there.
func (r *Receiver) unfinished(c *chain.Call, key Key, err error) error {
	if errors.Is(err, claims.ErrRolledBack) { // another attempt would write the same again
		return explained(failed("commit", key, err), endedByDatabase)
	}
	if !errors.Is(err, sql.ErrTxDone) {
		if outage.Unavailable(err) {
			return r.interrupted(c, failed("commit", key, err))
		}
		return failed("commit", key, err)
	}
	return explained(failed("commit", key, err), claims.EndedByHandler)
}

// explained is the error of a handler whose transaction has ended, with what to do.
func explained(err error, description string) error {
	return classify.Permanent(fmt.Errorf("%w (%s)", err, description), classify.Description(description))
}

// left is the error of an attempt that failed with err and may have left something behind. After a commit by the
// handler itself the key stays, so that another attempt would be absorbed as if this one had succeeded: set aside, it
// is seen.
func (r *Receiver) left(key Key, err, released error) error {
	eventClaimNotReleased.Write(r.config.Logger, released, fields(key))
	if !errors.Is(released, sql.ErrTxDone) {
		return err
	}
	return explained(errors.Join(failed("release", key, released), err), claims.EndedByHandler)
}

// absorb ends a message whose key was applied before, without its handler.
func (r *Receiver) absorb(c *chain.Call, entry Entry, record *Record) ([]*message.Message, error) {
	key := entry.Key
	if entry.Versioned && record.Versioned && record.Version > entry.Version {
		r.stale(c, entry, record.Version)
		return nil, nil
	}
	if len(entry.Fingerprint) > 0 && len(record.Fingerprint) > 0 &&
		!bytes.Equal(entry.Fingerprint, record.Fingerprint) {
		text := "the key was applied with another payload: the producer used it twice, or changed the message and sent it again. " +
			"Give the message a key of its own, or a version (ReceiverConfig.Version), or let payloads differ " +
			"(ReceiverConfig.AnyPayload)"
		return nil, classify.Invalid(failed("absorb", key, errors.New(text)), classify.Reason(classify.ReasonKeyReused),
			classify.Description(text))
	}
	if record.Settled {
		eventSettledAbsorbed.Write(r.config.Logger, nil, fields(key))
		return nil, nil
	}
	return r.replay(c, entry, record.Outputs)
}

// replay returns what was recorded when the key was applied.
func (r *Receiver) replay(c *chain.Call, entry Entry, recorded []byte) ([]*message.Message, error) {
	key := entry.Key
	out, err := decodeOutputs(recorded)
	if err != nil {
		return nil, classify.Permanent(failed("read the recorded outputs of", key, err))
	}
	for _, m := range out {
		m.SetContext(c.Msg.Context())
	}
	r.watch(c, entry, out)
	eventDuplicateAbsorbed.Write(r.config.Logger, nil, fields(key))
	r.tell("OnDuplicate", r.config.Hooks.OnDuplicate, c.Msg.Context(), key)
	return out, nil
}

func (r *Receiver) stale(c *chain.Call, entry Entry, applied int64) {
	eventVersionSkipped.Write(r.config.Logger, nil, logging.Fields{
		logging.Consumer: entry.Consumer, logging.Key: entry.ID, "version": entry.Version, "applied": applied,
	})
	if hook := r.config.Hooks.OnStale; hook != nil {
		safecall.Hook(r.config.Logger.With(fields(entry.Key)), "idempotency.OnStale", func() {
			hook(c.Msg.Context(), entry.Key, entry.Version, applied)
		})
	}
}

// requeue gives the message back, which counts for nothing. It is held for a while first, because some subscribers
// deliver what is requeued at once and without end.
func (r *Receiver) requeue(c *chain.Call, err error) error {
	half := r.config.requeueAfter/2 + 1
	timing.Wait(c.WaitContext(), half+rand.N(half))
	return chain.Requeued(err)
}

// markTimeout bounds how long the mark of published outputs may take: the message is acked after it.
const markTimeout = 5 * time.Second

// watch has the outputs of a key forgotten when they are seen published. For a redriven message it always does: its
// letter may be one whose outputs could not be published, and it has succeeded when they are.
func (r *Receiver) watch(c *chain.Call, entry Entry, out []*message.Message) {
	if len(out) == 0 || !r.config.MarkPublished && !redriven(c) {
		return
	}
	c.OnPublished(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Ctx), markTimeout)
		defer cancel()
		err := safecall.Call("Store.MarkPublished", func() error { return r.store.MarkPublished(ctx, entry) })
		if err != nil {
			eventOutputsUnmarked.Write(r.config.Logger, err, fields(entry.Key))
		}
	})
}

func redriven(c *chain.Call) bool { return c.Msg.Metadata[chain.KeyRedriveCount] != "" }

// The receiver, and the purge of keys.
var (
	// each: nothing
	eventDuplicateAbsorbed = logging.DebugEvent("duplicate_absorbed", "The receiver absorbed a duplicate")
	// each: nothing
	eventSettledAbsorbed = logging.DebugEvent("settled_absorbed",
		"The receiver absorbed a message that ended without an effect before")
	// each: nothing
	eventVersionSkipped = logging.DebugEvent("version_skipped",
		"The receiver skipped a version: a later one was applied before")
	// each: Repair the database.
	eventOutputsUnmarked = logging.ErrorEvent("outputs_unmarked",
		"The receiver cannot mark outputs as published; a duplicate publishes them again")
	// once: Give each handler its own receiver.
	eventConsumerShared = logging.ErrorEvent("consumer_shared",
		"Two handlers have the same Consumer: a message that both receive is applied by one of them, and absorbed by "+
			"the other. Give each handler a receiver of its own, or leave ReceiverConfig.Consumer out")
	// each: Look for effects that happened twice.
	eventAppliedUnrecorded = logging.ErrorEvent("applied_unrecorded",
		"The receiver cannot record that a message was applied; it is requeued, and its effects may happen again")
	// each: nothing
	eventLeaseNotRenewed = logging.DebugEvent("lease_not_renewed", "The receiver cannot renew a lease, and tries again")
	// each: nothing
	eventLeaseNotGivenUp = logging.InfoEvent("lease_not_given_up",
		"The receiver cannot give up the lease of a failed message; it comes again when the lease has expired")
	// each: Look for double effects; make the lease longer than the handler.
	eventLeaseLost = logging.ErrorEvent("lease_lost",
		"The receiver lost a lease while the handler was at work; its effects may happen twice")
	// each: nothing, unless it goes on
	eventClaimNotReleased = logging.InfoEvent("claim_not_released",
		"The receiver cannot release the claim of a duplicate, or of a failed message; the database ends it with its "+
			"connection")
	// once: It is logged if a claim waits. Raise `SetMaxOpenConns`, or handle fewer messages at once.
	eventPoolUsedUp = logging.ErrorEvent("pool_used_up",
		"Messages wait for connections that other messages hold, perhaps for ever")
	// start: Make `PurgeConfig.Retention` longer than the horizon.
	eventPurgeTooEarly = logging.ErrorEvent("purge_too_early",
		"Keys are purged while their messages may still come again: a message that is redriven or retried after its "+
			"key was purged is applied again")
	// each: Repair the database, if it goes on.
	eventPurgeFailed = logging.ErrorEvent("purge_failed",
		"A purge of keys failed; it is tried again when the next is due")
	// each: nothing
	eventKeysPurged = logging.DebugEvent("keys_purged", "Purged keys")
	// stop: Repair the database.
	eventPurgeHangs = logging.ErrorEvent("purge_hangs",
		"A purge of keys did not end in time; the router stops without waiting for it")
)
