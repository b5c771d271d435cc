package destination

import (
	"errors"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// IsRefused reports whether a publisher's error is a refusal for content: classify.ErrRefused, or one of the errors with
// which clients and marshalers refuse metadata: names that NATS cannot have, or Watermill's own key. Foreign producers can
// send such metadata.
func IsRefused(err error) bool {
	return errors.Is(err, classify.ErrRefused) || err != nil && foreign.Says(boundedtext.Error(err, 1<<10), foreign.Refuses)
}
