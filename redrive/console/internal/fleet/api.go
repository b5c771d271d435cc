package fleet

import (
	"context"
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
	*apiclient.Client
	causes int
}

// OverAPI returns the service at an address. No other address is ever asked.
func OverAPI(address, tokenFile string, causes int) (*API, error) {
	client, err := apiclient.New(apiclient.Config{URL: address, TokenFile: tokenFile, Names: settings,
		Program: "a console of Spillway", MostRead: mostRead, Brief: true})
	return &API{client, causes}, err
}

// Read returns the state of the service. Nothing of it is believed but its numbers: its texts are bounded here, and made
// safe where they are shown.
func (a *API) Read(ctx context.Context) (s State, err error) {
	var health operate.HealthData
	if err := a.Get(ctx, &health, nil, "health"); err != nil {
		return s, err
	}
	var list operate.CausesData
	if err := a.Get(ctx, &list, url.Values{"limit": {strconv.Itoa(a.causes)}}, "causes"); err != nil {
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
