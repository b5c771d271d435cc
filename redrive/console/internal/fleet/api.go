package fleet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/apiclient"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	// mostRead bounds an answer, in bytes.
	mostRead = 1 << 20
	// mostText bounds a text of an answer, in bytes.
	mostText = 1 << 10
)

var settings = apiclient.Names{URL: "Config.URL", TokenFile: "Config.TokenFile"}

// API is a service that is read over the API of its own console.
type API struct {
	at        *url.URL
	tokenFile string
	causes    int
	client    *http.Client
}

// errElsewhere is the error of a redirect, which would take the token to another place.
var errElsewhere = errors.New("it sends the request elsewhere, which is not followed: make Config.URL the address of its console")

// OverAPI returns the service at an address. No other address is ever asked.
func OverAPI(address, tokenFile string, causes int) (*API, error) {
	at, err := settings.Address(address)
	if err != nil {
		return nil, err
	}
	if _, err := settings.Token(tokenFile); err != nil {
		return nil, err
	}
	return &API{at: at, tokenFile: tokenFile, causes: causes, client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return errElsewhere },
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
			MaxResponseHeaderBytes: 64 << 10,
			DisableKeepAlives:      true, // nothing is kept between requests
		},
	}}, nil
}

// Home is the address of the service's own console.
func (a *API) Home() string { return a.at.String() + "/" }

// Read returns the state of the service. Nothing of it is believed but its numbers: its texts are bounded here, and made
// safe where they are shown.
func (a *API) Read(ctx context.Context) (s State, err error) {
	var health operate.HealthData
	if err := a.get(ctx, &health, nil, "health"); err != nil {
		return s, err
	}
	var list operate.CausesData
	if err := a.get(ctx, &list, url.Values{"limit": {strconv.Itoa(a.causes)}}, "causes"); err != nil {
		return s, err
	}
	s.Waiting = max(0, health.Letters[string(letters.StatusWaiting)])
	s.FailedAgain = max(0, health.Letters[string(letters.StatusFailedAgain)])
	s.Oldest, s.Stopped = timeOf(health.OldestFailedAt), max(0, health.Stopped)
	for state, n := range health.Campaigns {
		if !campaigns.State(state).Ended() {
			s.Campaigns += max(0, n)
		}
	}
	for _, c := range list.Causes[:min(len(list.Causes), a.causes)] {
		g := letters.Group{Cause: bounded(c.Cause), Count: max(0, c.Count), FirstFailedAt: timeOf(c.FirstFailedAt),
			LastFailedAt: timeOf(c.LastFailedAt), Handler: bounded(c.Handler), Reason: bounded(c.Reason),
			Description: bounded(c.Description)}
		_ = g.Class.UnmarshalText([]byte(c.Class)) // a newer server may have more classes
		s.Causes = append(s.Causes, g)
	}
	return s, nil
}

func bounded(text string) string { return boundedtext.Text(text, mostText) }

// timeOf is the zero time for what is none.
func timeOf(text string) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, text)
	return at
}

// get reads what is at a path of the API.
func (a *API) get(ctx context.Context, out any, query url.Values, path string) error {
	token, err := settings.Token(a.tokenFile)
	if err != nil {
		return err
	}
	at := a.at.JoinPath("api", "v1", path)
	at.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode != http.StatusOK || kind != "application/json" {
		return fmt.Errorf("the API at %s answers with the status %d and %q: its access function must know the token of "+
			"Config.TokenFile", a.at.Host, response.StatusCode, boundedtext.Text(kind, 100))
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, mostRead+1))
	if err != nil {
		return err
	}
	if len(body) > mostRead {
		return fmt.Errorf("the API at %s gave an answer of more than %d bytes", a.at.Host, mostRead)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("the API at %s gave an answer that cannot be read: %w", a.at.Host, err)
	}
	return nil
}
