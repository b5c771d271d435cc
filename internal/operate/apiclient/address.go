package apiclient

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Names are what errors call the settings.
type Names struct{ URL, TokenFile string }

// Address reads the address of a console, or of its API. What it has in it goes to no other machine in the clear.
func (n Names) Address(text string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil: // its text has all of the address, with a password if there is one
		return nil, fmt.Errorf("%s is no address: use one such as https://shop.example.com/deadletters/", n.URL)
	case u.User != nil:
		return nil, fmt.Errorf("%s has a name or a password: leave it out, and put the token into the file of %s",
			n.URL, n.TokenFile)
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Opaque != "":
		return nil, fmt.Errorf("%s is %.200q: use an address such as https://shop.example.com/deadletters/", n.URL,
			u.Redacted())
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, fmt.Errorf("%s is %.200q: leave out what begins with ? or #", n.URL, u.Redacted())
	case u.Scheme == "http" && !here(u.Hostname()):
		return nil, fmt.Errorf("%s is %.200q: use https; a token goes over http to this machine alone", n.URL,
			u.Redacted())
	}
	for _, path := range []*string{&u.Path, &u.RawPath} {
		*path = strings.TrimSuffix(strings.TrimRight(*path, "/"), "/api/v1")
	}
	return u, nil
}

// here reports whether a host is this machine.
func here(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }
