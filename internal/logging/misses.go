package logging

import (
	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// writeMisses writes what was met of other modules that is not as the library knows it. Each is written once in a
// process, before the next line of any event, or when a router begins.
func writeMisses(logger watermill.LoggerAdapter) {
	for _, miss := range foreign.Take() {
		ForeignUnknown.Write(logger, nil, Fields{"of": miss.Of, "unknown": miss.What})
	}
}
