package idempotency

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

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
	k := keys{handlers: make(map[string]*HandlerKey, len(c.Handlers)), others: withDefault(HandlerKey{c.Key, c.Version})}
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
