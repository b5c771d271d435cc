package remote

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/watermill-spillway/spillway/internal/operate/apiclient"
)

// flags are what errors call the settings.
var flags = apiclient.Names{URL: "--url", TokenFile: "--token-file"}

// Address reads the address of a console, or of its API.
func Address(text string) (*url.URL, error) { return flags.Address(text) }

// readToken reads a token for each request.
func readToken(path string) (string, error) {
	token, err := flags.Token(path)
	if err != nil {
		err = wrongConfig{err}
	}
	return token, err
}

// ErrConfig is the error of an address or a file that cannot be.
var ErrConfig = errors.New("the settings are wrong")

type wrongConfig struct{ error }

func (wrongConfig) Is(target error) bool   { return target == ErrConfig }
func (w wrongConfig) Unwrap() error        { return w.error }
func configError(f string, a ...any) error { return wrongConfig{fmt.Errorf(f, a...)} }
