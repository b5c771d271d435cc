package destination

import (
	"errors"
	"strings"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

// IsRefused reports whether a publisher's error is a refusal for content: classify.ErrRefused, or the error with which
// marshalers of Watermill, as those of Redis Streams and Kafka, refuse metadata that have their own key. Foreign
// producers can send such metadata.
func IsRefused(err error) bool {
	return errors.Is(err, classify.ErrRefused) ||
		err != nil && strings.Contains(boundedtext.Error(err, 1<<10), "is reserved by watermill for message UUID")
}
