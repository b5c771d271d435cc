package observe

import (
	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/privacy"
)

// Shared has the fields that mean the same for all parts: the Config of each part embeds it.
//
// In a spillway.Channel these fields are set once, in spillway.Config. Each part then uses what its own Shared leaves
// empty. A part that is used alone takes the same fields:
//
//	retry, err := middleware.NewRetry(middleware.RetryConfig{Shared: observe.Shared{Logger: logger}})
//
// The Config of a part says which of the fields it uses. It ignores the others, so one Shared can go to all parts.
type Shared struct {
	// Logger receives the log lines of a part. Payloads are never logged. Default: none; in a spillway.Channel, the
	// channel's.
	Logger watermill.LoggerAdapter
	// Classifier judges errors. Default: the marks of package classify and its built-in knowledge; in a
	// spillway.Channel, the one made of Config.Classify.
	Classifier *classify.Classifier
	// Privacy masks secrets in what is shown: texts of letters, log lines, errors, and what hooks are called with. It
	// never changes what is redriven. privacy.None() turns masking off. Default: credentials are masked.
	Privacy *privacy.Redactor
	// Tracer follows attempts and publishings. Package observe/telemetry has the one for OpenTelemetry. Default: none.
	Tracer Tracer
}
