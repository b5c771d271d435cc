package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/settings"
)

const (
	// usualTimeout is the time that one request may take, with all its queries.
	usualTimeout = 20 * time.Second
	// maxName is how long a person's name may be, in bytes.
	maxName = 1 << 10
)

// Config configures New. Campaigns and Access are required.
type Config struct {
	// Campaigns has the campaigns of the service, and its Store has the letters. Required, but for a service of Fleet
	// with a URL.
	Campaigns *campaigns.Campaigns
	// URL is the address of a service's own console, https://shop.example.com/deadletters/, for Fleet: in place of
	// Campaigns. The page of the fleet has its numbers and causes, over its API, and links to it. Default: none.
	URL string
	// TokenFile is a file that others cannot read, with the bearer token for URL. It is read for each request. All
	// whom Access lets look see the numbers that the token may see: LookWithoutPayload is enough. Default: none.
	TokenFile string
	// Access returns who sends a request, and what that person may do. It is called once for each request, and must be
	// quick. An error means that it is not known: the page says so with status 503, and the log has the error. A person
	// whom it does not know is no error: return the zero Person. Loopback lets all look who come from the same machine,
	// and proves no more. Required.
	Access func(*http.Request) (Person, error)
	// TrustedOrigins are origins, such as https://ops.example.com, whose pages may send forms to the console. Name the
	// origin that people see if a proxy changes the Host header. Default: the console's own.
	TrustedOrigins []string
	// Breakers returns the handlers whose messages are held, for the overview: dlc.Breaker().Health. It must be quick.
	// If it panics, the overview says so and shows the rest. Default: none are shown.
	Breakers func() []breaker.Status
	// Shared: Privacy masks what the console shows. Payloads that are downloaded are not masked. Logger receives a line
	// for each request that fails on the server's side.
	settings.Shared
}

var errNoAccess = errors.New("console: Config.Access is nil: set it to a function that says who sends a request, and " +
	"what that person may do; on your own machine, without a proxy or a tunnel, console.Loopback lets all look")

func (c *Config) setDefaults() {
	c.Logger = logging.Wrap(c.Logger, c.Privacy.Text)
}

func (c *Config) validate() error {
	switch {
	case c.URL != "" || c.TokenFile != "":
		return errors.New("console: Config.URL and Config.TokenFile are for a service of console.Fleet, without Campaigns: " +
			"leave them out")
	case c.Campaigns == nil:
		return errors.New("console: Config.Campaigns is nil: set it to what campaigns.New returned, and check its error")
	case c.Access == nil:
		return errNoAccess
	}
	for _, origin := range c.TrustedOrigins {
		if u, err := url.Parse(origin); err != nil || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("console: Config.TrustedOrigins has %q: an origin is a scheme and a host, such as "+
				"https://ops.example.com", origin)
		}
	}
	return nil
}
