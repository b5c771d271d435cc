package idempotency

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

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
