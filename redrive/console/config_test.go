package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/console"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
)

// A wrong configuration is an error that names its field.
func TestNewRefuses(t *testing.T) {
	all, err := campaigns.New(t.Context(), fixture.SQLite.NewStore(t), campaigns.Config{})
	if err != nil {
		t.Fatal(err)
	}
	who := func(*http.Request) (console.Person, error) { return console.Person{}, nil }
	for field, config := range map[string]console.Config{
		"Campaigns":      {Access: who},
		"Access":         {Campaigns: all},
		"TrustedOrigins": {Campaigns: all, Access: who, TrustedOrigins: []string{"ops.example.com"}},
	} {
		if _, err := console.New(config); err == nil || !strings.Contains(err.Error(), "Config."+field+" ") {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, config := range []console.Config{
		{Campaigns: all, Access: who, TrustedOrigins: []string{"https://a.example/path"}},
		{Campaigns: all, Access: who, TrustedOrigins: []string{"*"}}, {Campaigns: all, Access: who, TrustedOrigins: []string{""}},
	} {
		if _, err := console.New(config); err == nil {
			t.Errorf("%+v is taken", config)
		}
	}
	if c, err := console.New(console.Config{Campaigns: all, Access: console.Loopback}); err != nil || c == nil {
		t.Error(err)
	}
}
