package idempotency

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
	"github.com/watermill-spillway/spillway/poison"
)

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
		logging.SettledAbsorbed.Write(r.config.Logger, nil, fields(key))
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
	logging.DuplicateAbsorbed.Write(r.config.Logger, nil, fields(key))
	r.tell("OnDuplicate", r.config.Hooks.OnDuplicate, c.Msg.Context(), key)
	return out, nil
}

func (r *Receiver) stale(c *chain.Call, entry Entry, applied int64) {
	logging.VersionSkipped.Write(r.config.Logger, nil, logging.Fields{
		logging.Consumer: entry.Consumer, logging.Key: entry.ID, "version": entry.Version, "applied": applied,
	})
	if hook := r.config.Hooks.OnStale; hook != nil {
		safecall.Hook(r.config.Logger.With(fields(entry.Key)), "idempotency.OnStale", func() {
			hook(c.Msg.Context(), entry.Key, entry.Version, applied)
		})
	}
}

// putBack gives the message back, which counts for nothing. It is held for a while first, because some subscribers
// deliver what is requeued at once and without end.
func (r *Receiver) putBack(c *chain.Call, err error) error {
	half := r.config.requeueAfter/2 + 1
	wait.For(c.WaitContext(), half+rand.N(half))
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
			logging.OutputsUnmarked.Write(r.config.Logger, err, fields(entry.Key))
		}
	})
}

func redriven(c *chain.Call) bool { return c.Msg.Metadata[poison.KeyRedriveCount] != "" }
