package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
)

// byID takes the message's id as the key. A message without an id is invalid.
func byID(msg *message.Message) (string, error) {
	if msg.UUID == "" {
		return "", invalid("the message has no id to take as its key")
	}
	return msg.UUID, nil
}

// ByMetadata returns a Key for ReceiverConfig that takes the value of a metadata field, such as an idempotency key set
// by the producer. A message without the field is invalid, with reason missing_metadata.
func ByMetadata(field string) func(*message.Message) (string, error) {
	return func(msg *message.Message) (string, error) {
		if v := msg.Metadata.Get(field); v != "" {
			return v, nil
		}
		text := "the message has no metadata " + strconv.Quote(field) + " to take as its key"
		return "", invalid(text, classify.Reason(classify.ReasonMissingMetadata))
	}
}

// ByPayloadHash is a Key for ReceiverConfig that takes the SHA-256 of the payload, for producers that give each
// delivery a new id. Messages with the same payload are then the same message, even if they were not meant to be. A
// message without a payload is invalid.
func ByPayloadHash(msg *message.Message) (string, error) {
	if len(msg.Payload) == 0 {
		return "", invalid("the message has no payload to take the hash of as its key")
	}
	sum := sha256.Sum256(msg.Payload)
	return hex.EncodeToString(sum[:]), nil
}

func invalid(text string, opts ...classify.Option) error {
	return classify.Invalid(errors.New(text), append(opts, classify.Description(text))...)
}

// key returns the key of msg, recognised as by says, for the consumer that ctx names.
func (r *Receiver) key(ctx context.Context, msg *message.Message, by *HandlerKey) (Key, error) {
	handler := r.config.Consumer
	if handler == "" {
		handler = message.HandlerNameFromCtx(ctx)
	}
	if handler == "" {
		return Key{}, classify.Permanent(errors.New("idempotency: the handler has no name: only a router names its " +
			"handlers; outside of one, set ReceiverConfig.Consumer"))
	}
	if r.config.Consumer != "" {
		r.share(message.HandlerNameFromCtx(ctx))
	}
	consumer := r.known.of(handler, r.store)
	id, err := by.call(msg)
	if err == nil && id == "" {
		err = invalid("ReceiverConfig.Key returned an empty key, which all such messages would share")
	}
	if err != nil {
		return Key{}, fmt.Errorf("idempotency: key of message %s for consumer %s: %w", quote(msg.UUID), quote(consumer),
			err)
	}
	return Key{Consumer: consumer, ID: id}, nil
}

// identities are what a store calls handlers, kept so that a message costs no new string.
type identities struct {
	mu  sync.RWMutex
	all map[string]string
}

func (i *identities) of(handler string, store Store) string {
	i.mu.RLock()
	consumer, ok := i.all[handler]
	i.mu.RUnlock()
	if ok {
		return consumer
	}
	consumer = store.Consumer(handler)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.all == nil {
		i.all = make(map[string]string)
	}
	i.all[handler] = consumer
	return consumer
}

// share logs once that a second handler uses ReceiverConfig.Consumer.
func (r *Receiver) share(handler string) {
	if handler == "" || r.handler.CompareAndSwap(nil, &handler) {
		return
	}
	if first := *r.handler.Load(); first != handler && r.shared.CompareAndSwap(false, true) {
		eventConsumerShared.Write(r.config.Logger, errShared,
			logging.Fields{logging.Consumer: r.config.Consumer, "first": first, "second": handler})
	}
}

var errShared = errors.New("idempotency: ReceiverConfig.Consumer names two handlers")

func (k *HandlerKey) call(msg *message.Message) (id string, err error) {
	err = safecall.Call("ReceiverConfig.Key", func() (err error) {
		id, err = k.Key(msg)
		return err
	})
	return id, err
}

// quote makes a short text of an id that may hold anything.
func quote(s string) string { return strconv.Quote(boundedtext.Text(s, 128)) }

// HandlerKey is how the messages of one handler are recognised. The zero value is the message's id.
type HandlerKey struct {
	// Key takes the place of ReceiverConfig.Key. Default: the message's id.
	Key func(msg *message.Message) (string, error)
	// Version takes the place of ReceiverConfig.Version. It requires Key. Default: none.
	Version func(msg *message.Message) (int64, error)
}

// keys are how a Receiver recognises messages.
type keys struct {
	handlers map[string]*HandlerKey
	others   *HandlerKey
}

func newKeys(c *ReceiverConfig) keys {
	k := keys{handlers: make(map[string]*HandlerKey, len(c.Handlers)),
		others: withDefault(HandlerKey{c.Key, c.Version})}
	for handler, key := range c.Handlers { // the caller may change its own
		k.handlers[handler] = withDefault(key)
	}
	return k
}

func withDefault(k HandlerKey) *HandlerKey {
	if k.Key == nil {
		k.Key = byID
	}
	return &k
}

// of returns how msg is recognised in the handler that its context names.
func (k *keys) of(msg *message.Message) *HandlerKey {
	if len(k.handlers) > 0 {
		if own := k.handlers[message.HandlerNameFromCtx(msg.Context())]; own != nil {
			return own
		}
	}
	return k.others
}

func validateKeys(c *ReceiverConfig) error {
	check := func(field string, k HandlerKey) error {
		if k.Version != nil && k.Key == nil {
			return fmt.Errorf("idempotency: %s.Version is set, and Key is not: each message has its own id, so it has one version; "+
				"set Key to what all versions of a thing have in common", field)
		}
		return nil
	}
	for handler, k := range c.Handlers {
		if err := check(fmt.Sprintf("ReceiverConfig.Handlers[%q]", handler), k); err != nil {
			return err
		}
	}
	return check("ReceiverConfig", HandlerKey{c.Key, c.Version})
}

// VersionMetadata returns a Version for ReceiverConfig that reads the version from a metadata field: a decimal number
// of 64 bits, with an optional sign. A message without the field is invalid, with reason missing_metadata. Any other
// value is invalid too.
func VersionMetadata(field string) func(*message.Message) (int64, error) {
	return func(msg *message.Message) (int64, error) {
		text := msg.Metadata.Get(field)
		if text == "" {
			text := "the message has no metadata " + strconv.Quote(field) + " to take as its version"
			return 0, invalid(text, classify.Reason(classify.ReasonMissingMetadata))
		}
		version, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, invalid(fmt.Sprintf("the metadata %q is %q, and a version is a decimal number of 64 bits", field,
				boundedtext.Text(text, 64)))
		}
		return version, nil
	}
}

// entry returns what a claim of msg enters, for the consumer that ctx names.
func (r *Receiver) entry(ctx context.Context, msg *message.Message) (Entry, error) {
	by := r.keys.of(msg)
	key, err := r.key(ctx, msg, by)
	entry := Entry{Key: key, Versioned: by.Version != nil}
	if err != nil {
		return entry, err
	}
	if !r.config.AnyPayload {
		sum := sha256.Sum256(msg.Payload)
		entry.Fingerprint = sum[:]
	}
	if entry.Versioned {
		err := safecall.Call("ReceiverConfig.Version", func() (err error) {
			entry.Version, err = by.Version(msg)
			return err
		})
		if err != nil {
			return entry, failed("find the version of", key, err)
		}
	}
	return entry, nil
}
