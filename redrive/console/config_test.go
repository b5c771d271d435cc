package console_test

import (
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
	for field, config := range map[string]console.Config{
		"Campaigns":      {},
		"Timeout":        {Campaigns: all, Timeout: -1},
		"Title":          {Campaigns: all, Title: strings.Repeat("x", 2000)},
		"Prefix":         {Campaigns: all, Prefix: "deadletters"},
		"TrustedOrigins": {Campaigns: all, TrustedOrigins: []string{"ops.example.com"}},
	} {
		if _, err := console.New(config); err == nil || !strings.Contains(err.Error(), "Config."+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, config := range []console.Config{
		{Campaigns: all, Prefix: "//evil"}, {Campaigns: all, Prefix: "/a?b"}, {Campaigns: all, TrustedOrigins: []string{"https://a.example/path"}},
		{Campaigns: all, TrustedOrigins: []string{"*"}}, {Campaigns: all, TrustedOrigins: []string{""}},
	} {
		if _, err := console.New(config); err == nil {
			t.Errorf("%+v is taken", config)
		}
	}
	if c, err := console.New(console.Config{Campaigns: all}); err != nil || c == nil {
		t.Error(err)
	}
}
