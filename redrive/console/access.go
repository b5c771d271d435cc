package console

import (
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
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

// roles are the roles as the pages name them. A person has no other: see person.
var roles = operate.RightNames

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
	return operate.Person{Name: r.person.Name, Reason: reason, Right: operate.Right(r.person.Role)}
}

// accessUnknown is the fault of a request whose access function failed.
func accessUnknown(err error) *fault {
	return &fault{status: http.StatusServiceUnavailable, title: "Your access is not known",
		text:  "The service could not find out who you are and what you may do. The log of the service says why.",
		cause: err}
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
	if err != nil {
		err = errors.Join(&operate.Problem{Status: http.StatusServiceUnavailable, Type: operate.ProblemAccess,
			Title: "Your access is not known", Detail: "The service could not find out who you are and what you may do. The " +
				"log of the service says why."}, err)
	}
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
