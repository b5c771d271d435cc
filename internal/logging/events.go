package logging

import "github.com/ThreeDotsLabs/watermill"

// The events are in failing.go, outages.go, waiting.go, receiver.go, returning.go and adapters.go. The comment of each
// begins with when a line comes: each time, message or try; once for what the fields name; outage, once an outage;
// start or stop of the router. What to do follows.

// The levels of events. An operator must act on an Error line. What the service does by itself is an Info line, or a
// Debug line if it is part of its daily work. An outage is one Error line when it begins, and one Info line when it
// ends.
const (
	isError = watermill.ErrorLogLevel
	isInfo  = watermill.InfoLogLevel
	isDebug = watermill.DebugLogLevel
)
