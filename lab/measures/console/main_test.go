package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each page gives a line.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	p := plan{rows: 30, people: 4, round: 300 * time.Millisecond, pause: time.Millisecond, db: "sqlite"}
	testkit.NoError(t, p.run(t.Context(), &out))
	var pages []string
	for line := range strings.Lines(out.String()) {
		var figure map[string]any
		err := json.Unmarshal([]byte(line), &figure)
		testkit.Require(t, err == nil, "%v %v", line, err)
		if figure["figure"] == "console_ms" {
			pages = append(pages, figure["page"].(string))
		}
	}
	got := strings.Join(pages, "; ")
	testkit.Check(t, strings.HasPrefix(got, "overview; causes; letters; "), "pages %s", got)
}
