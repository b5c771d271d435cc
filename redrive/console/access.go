package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Role is what a person may do. Each role may do what those before it may.
type Role uint8

const (
	nothing Role = iota // the zero Role may see nothing
	// LookWithoutPayload may see counts, causes, letters and campaigns, but no payload and no value of metadata.
	LookWithoutPayload
	// Look may see payloads and metadata too.
	Look
	// Operate may redrive, edit and discard letters, and steer campaigns.
	Operate
	// Approve may approve campaigns that another person started.
	Approve
)

// Person is the person or program that sends a request.
type Person struct {
	// Name goes into the record of all that the person does, at most 1 KiB of it. A person without a name can look, and
	// do nothing.
	Name string
	// Role is what the person may do. Default: nothing.
	Role Role

	note string // what the pages say about the access
}

// Loopback is an access function for a console on your own machine: all who reach it from there may look, without a
// name, and change nothing. It proves where a connection begins, and not who sends a request. Other users of the
// machine are let in. So is everyone behind a proxy or a tunnel on the machine that adds no header, such as
// httputil.ReverseProxy with SetURL, or proxy_pass. If there may be one, use a function that knows people.
//
// A request that comes from another machine is refused. So is one with a header that proxies add, and one that asks for
// a name other than localhost: a page of another site can have its own name resolve to the machine.
func Loopback(r *http.Request) (Person, error) {
	if whyNot := notFromHere(r); whyNot != "" {
		return Person{note: whyNot}, nil
	}
	return Person{Role: Look, note: "All who reach this console from its own machine may look: its access function " +
		"is console.Loopback. A proxy or a tunnel on this machine lets others in."}, nil
}

// who is the person of a request, with a reason, for package operate.
func (r *request) who(reason string) operate.Person {
	who := r.Person
	who.Reason = reason
	return who
}

// accessUnknown is the error of a request whose access function failed.
func accessUnknown(err error) error {
	return errors.Join(&operate.Problem{Status: http.StatusServiceUnavailable, Type: operate.ProblemAccess,
		Title: "Your access is not known", Detail: "The service could not find out who you are and what you may do. The log " +
			"of the service says why."}, err)
}

// person returns who sends a request, and a text if there is something to say about it.
func (c *console) person(r *http.Request) (who Person, why string, err error) {
	if c.config.Access == nil { // all that the page of a fleet may show is in its table
		return Person{}, "", noPage()
	}
	err = safecall.Call("console.Config.Access", func() (err error) {
		who, err = c.config.Access(r)
		return err
	})
	if err != nil {
		return Person{}, "", accessUnknown(err)
	}
	who.Name, who.Role = boundedtext.Text(who.Name, maxName), min(who.Role, Approve)
	if who.Name == "" && who.Role > Look {
		return Person{Role: Look}, "The access function gave no name, and the record needs one. So you may look and do " +
			"nothing.", nil
	}
	return who, who.note, nil
}

// operator is the person of a request to the API.
func (c *console) operator(r *http.Request) (operate.Person, string, error) {
	who, note, err := c.person(r)
	return operate.Person{Name: who.Name, Right: operate.Right(who.Role)}, note, err
}

// notFromHere says why a request may come from another machine.
func notFromHere(r *http.Request) (why string) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || !loopback(host) {
		return "This console answers requests from its own machine alone: its access function is console.Loopback."
	}
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip",
		"Via"} {
		if r.Header.Get(header) != "" {
			return say("This console answers requests from its own machine alone, because its access function is "+
				"console.Loopback. The request has the header %s: a proxy forwards it.", header)
		}
	}
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	if !loopback(name) {
		return "This console answers requests from its own machine alone, because its access function is " +
			"console.Loopback. It was asked for by a name that is not localhost."
	}
	return ""
}

func loopback(host string) bool {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

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
	Breakers func() []circuit.Status
	// Decode returns the payload of a letter as a text for people, and the media type of the text, such as
	// application/json. The text is masked, and shown as text whatever it has. Without a media type and an error the
	// payload is shown as it is. An error is shown with the bytes. A panic is contained, 5 s and 1 MiB are the most; what
	// ends a process, such as a stack without end, is not contained. Search stays on the bytes. Default: nil, payloads
	// are shown as they are.
	Decode func(ctx context.Context, l letters.Letter) (text, mediaType string, err error)
	// Encode returns the payload that an edited text of Decode is, with the same bounds, and the same bytes each time. l
	// is the letter as it was. Decode must read what Encode returns. Default: nil, what is no text is not edited.
	Encode func(ctx context.Context, l letters.Letter, text string) ([]byte, error)
	// Shared: Privacy masks what the console shows. Payloads that are downloaded are not masked. Logger receives a line
	// for each request that fails on the server's side.
	observe.Shared
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
	case c.Encode != nil && c.Decode == nil:
		return errors.New("console: Config.Encode is set, and Config.Decode is nil: set both, or leave Encode out")
	}
	for _, origin := range c.TrustedOrigins {
		if u, err := url.Parse(origin); err != nil || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("console: Config.TrustedOrigins has %q: an origin is a scheme and a host, such as "+
				"https://ops.example.com", origin)
		}
	}
	return nil
}
