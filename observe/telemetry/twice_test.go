package telemetry_test

import (
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/observe/telemetry"
)

// Feature O2, bad input: a second Observe of a Config would count twice. It is an error, and so is nil.
func TestObserveTwice(t *testing.T) {
	observed, err := telemetry.New(telemetry.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var config, another spillway.Config
	for want, err := range map[string]error{
		"check the error of New": (*telemetry.Telemetry)(nil).Observe(&config),
		"the Config is nil":      observed.Observe(nil),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := observed.Observe(&config); err != nil {
		t.Fatal(err)
	}
	if err := observed.Observe(&config); err == nil || !strings.Contains(err.Error(), "count twice") {
		t.Error(err)
	}
	if err := observed.Observe(&another); err != nil {
		t.Error(err)
	}
}
