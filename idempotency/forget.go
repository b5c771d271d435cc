package idempotency

import (
	"context"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/keytable"
)

// Forgetting says what Forget does.
type Forgetting struct {
	// Keys are the keys as ReceiverConfig.Key returns them: by default the ids of the messages. Keys of every handler of
	// the store's service are meant. Required.
	Keys []string
	// Remove removes the keys. A message that comes again is then applied again. Default: false, the keys stay, so that
	// such a message is absorbed, without their outputs and fingerprints.
	Remove bool
	// DryRun counts the keys and changes none.
	DryRun bool
}

// Forgotten is what Forget did, or would do.
type Forgotten struct {
	// Keys is the number of keys that were removed, or that stay without outputs and fingerprint.
	Keys int
	// Held is the number of keys that stay as they were because a handler has leased them. Forget them later.
	Held int
}

// Forget takes from the keys of messages what can say something of a person: the outputs that the handler produced,
// which are recorded until they are published, and the fingerprint of the payload. An output that was not published yet
// is then never published. With Forgetting.Remove the keys go too. Forget takes transactions of at most 200 keys, and
// can be called again. The store must be one of NewStore, or of pgxstore.
func Forget(ctx context.Context, store Store, f Forgetting) (Forgotten, error) {
	s, ok := store.(*sqlStore)
	switch {
	case !ok || s == nil:
		return Forgotten{}, fmt.Errorf("idempotency: forget keys: the store is a %T: use one of NewStore or pgxstore.New",
			store)
	case ctx == nil:
		return Forgotten{}, errors.New("idempotency: forget keys: the context is nil: use context.Background() if there is no other")
	case len(f.Keys) == 0:
		return Forgotten{}, errors.New("idempotency: forget keys: Forgetting.Keys is empty: name the keys")
	}
	if s.on.Held(ctx) {
		return Forgotten{}, errors.New("idempotency: forget keys: the message's own transaction holds the database: call " +
			"outside of the handler")
	}
	ids := make([]string, len(f.Keys))
	for i, key := range f.Keys {
		ids[i] = database.Column(key)
	}
	keys, held, err := keytable.Forget(ctx, s.on,
		keytable.Forgetting{Service: s.service, IDs: ids, Remove: f.Remove, DryRun: f.DryRun})
	if err != nil {
		err = fmt.Errorf("idempotency: %w", err)
	}
	return Forgotten{keys, held}, err
}

// CountOutputs counts the keys of the store's service that have recorded outputs, apart from some keys, which are as in
// Forgetting.Keys. An output can say something of a person whose message nothing else names any more: such a key is
// found by the id of its message alone. It reads all keys of the service, without their outputs, in small steps. The
// store must be one of NewStore, or of pgxstore.
func CountOutputs(ctx context.Context, store Store, except ...string) (int, error) {
	s, ok := store.(*sqlStore)
	switch {
	case !ok || s == nil:
		return 0, fmt.Errorf("idempotency: count outputs: the store is a %T: use one of NewStore or pgxstore.New", store)
	case ctx == nil:
		return 0, errors.New("idempotency: count outputs: the context is nil: use context.Background() if there is no other")
	}
	if s.on.Held(ctx) {
		return 0, errors.New("idempotency: count outputs: the message's own transaction holds the database: call outside " +
			"of the handler")
	}
	ids := make(map[string]struct{}, len(except))
	for _, key := range except {
		ids[database.Column(key)] = struct{}{}
	}
	n, err := keytable.CountOutputs(ctx, s.on, s.service, ids)
	if err != nil {
		err = fmt.Errorf("idempotency: %w", err)
	}
	return n, err
}
