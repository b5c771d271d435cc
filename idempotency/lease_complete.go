package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/internal/wait"
)

// maxPauseLease is how long the record of a success waits at most before it is tried again.
const maxPauseLease = time.Second

// maxRefusals is how often the database must refuse a record while it takes a renewal: once may be chance.
const maxRefusals = 3

// complete records that the effects have happened. A message whose record fails is not one that failed: to retry it or
// to set it aside would be wrong, so it is put back, and finds then what became of the record. The lease is left to
// expire: it keeps others from repeating the effects while the database may come to itself. Only a record that the
// database refuses, such as outputs too large for it, is an error of the message: it would be refused each time, the
// effects before it.
func (r *Receiver) complete(c *chain.Call, key Key, k *keeper, outputs []byte) error {
	err := r.tryComplete(c, k, outputs)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLeaseLost):
		return r.lostLease(c, key, err)
	case errors.Is(err, errRefused):
		return classify.Permanent(failed("record", key, err), classify.Description(refused))
	}
	err = failed("record", key, err)
	logging.AppliedUnrecorded.Write(r.config.Logger, err, fields(key))
	return r.putBack(c, err)
}

// errRefused says that the database takes what is asked of it, but not the record.
var errRefused = errors.New("the database refuses the record")

const refused = "the handler's effects have happened, but the database refuses the record of it, perhaps because of " +
	"the messages that the handler returned: redriven, the message has its effects again"

// tryComplete tries for as long as the lease lasts; once the message has gone away, no longer than a request may take.
func (r *Receiver) tryComplete(c *chain.Call, k *keeper, outputs []byte) error {
	ctx := context.WithoutCancel(c.Msg.Context())
	first := time.Now()
	refusals := 0
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, maxPauseLease) {
		err := request(ctx, "Lease.Complete", func(ctx context.Context) error { return k.lease.Complete(ctx, outputs) })
		if err == nil || errors.Is(err, ErrLeaseLost) {
			return err
		}
		if (*classify.Classifier)(nil).Classify(err).Class != classify.ClassTransient {
			began := time.Now()
			if request(ctx, "Lease.Renew", k.lease.Renew) == nil { // it is there, and takes what is not the record
				k.renewed(began)
				refusals++
			}
		}
		if refusals == maxRefusals {
			return errors.Join(errRefused, err)
		}
		if k.left() <= pause || c.Gone() && time.Since(first) > requestTimeout || !wait.For(ctx, pause) {
			return err
		}
	}
}

func request(ctx context.Context, name string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return safecall.Call(name, func() error { return do(ctx) })
}
