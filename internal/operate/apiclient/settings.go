package apiclient

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"runtime"
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

// maxToken bounds a token, in bytes.
const maxToken = 16 << 10

// Token reads a token for each request, because what issues tokens renews its file. Without a file there is none. No
// error has anything of it.
func (n Names) Token(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", n.TokenFile, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", fmt.Errorf("%s: %w", n.TokenFile, err)
	}
	if mode := info.Mode(); runtime.GOOS != "windows" && mode.Perm()&0o027 != 0 {
		return "", fmt.Errorf("%s is %s, which others may read or write (mode %#o): chmod 600 it", n.TokenFile, path,
			mode.Perm())
	}
	text, err := io.ReadAll(io.LimitReader(file, maxToken+1))
	if err != nil {
		return "", fmt.Errorf("%s: %w", n.TokenFile, err)
	}
	token := strings.TrimSpace(string(text))
	switch {
	case token == "":
		return "", fmt.Errorf("%s is %s, which is empty: write your token into it", n.TokenFile, path)
	case len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("%s is %s, which has no token: it must be one line of visible ASCII, at most %d bytes",
			n.TokenFile, path, maxToken)
	}
	return token, nil
}

// ErrConfig is the error of an address or a file that cannot be.
var ErrConfig = errors.New("the settings are wrong")

type wrongConfig struct{ error }

func (wrongConfig) Is(target error) bool { return target == ErrConfig }
func (w wrongConfig) Unwrap() error      { return w.error }

// rootsOf are the certificates that vouch for the server: those of a file, or the system's.
func rootsOf(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, wrongConfig{fmt.Errorf("--ca: %w", err)}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, wrongConfig{fmt.Errorf("--ca is %s, which has no certificate: it must be PEM", path)}
	}
	return pool, nil
}
