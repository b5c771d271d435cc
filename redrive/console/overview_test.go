package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V11: the overview has the numbers, the causes of the last hour and what was done.
func TestOverview(t *testing.T) {
	b := newBench(t)
	b.get("/").want(t, http.StatusOK, "no letter waits", "No letter arrived in the last hour.")
	b.fill(1, 1312)
	p := b.get("/")
	p.want(t, http.StatusOK, ">1,312</a>", "no_such_customer", "<svg", `href="./letters?cause=`)
}

// What one person did to many letters at once is one line of the overview.
func TestOverviewFoldsEvents(t *testing.T) {
	b := newBench(t)
	b.fill(1, 300)
	show := func(by string, n int) {
		var seqs []int64
		for i := range n {
			seqs = append(seqs, int64(i+1))
		}
		if _, err := b.store.Inside().Record(t.Context(), nil, string(letters.EventShown), letters.Act{By: by, Reason: "look"}, seqs...); err != nil {
			t.Fatal(err)
		}
	}
	show("bob", 300)
	show("ann", 3)
	p := b.get("/")
	p.want(t, http.StatusOK, say("%s letter|%s letters", 3), say("%s letter or more|%s letters or more", 197))
	if n := strings.Count(p.body, "<bdi>look</bdi>"); n != 2 {
		t.Errorf("%d lines: %s", n, p.body)
	}
}

// Feature V11: a function that the console is given and that fails costs its own part of a page. The rest is shown, and
// the log has the error. So it is with a guard that is nil, and with a logger that panics.
func TestGivenFunctionsFail(t *testing.T) {
	var none *breaker.Breaker
	for name, guards := range map[string]func() []breaker.Status{
		"panics": func() []breaker.Status { panic("the guards are on fire") },
		"nil":    none.Health,
	} {
		t.Run(name, func(t *testing.T) {
			log := new(testkit.Log)
			b := newBench(t, func(c *Config) { c.Breakers, c.Logger = guards, log })
			b.fill(1, 12)
			for _, live := range []bool{false, true} {
				p := b.get("/", func(r *http.Request) {
					if live {
						r.Header.Set("Spillway-Live", "1")
					}
				})
				p.want(t, http.StatusOK, ">12</a>", "no_such_customer", "Handlers on hold", "No campaign runs.", "Nothing was done with letters yet.")
				failed := strings.Contains(p.body, "Which handlers are on hold is not known: the function of console.Config.Breakers failed. The log of the service says why.")
				if failed == strings.Contains(p.body, "No handler is on hold.") || failed != (len(log.Errors()) > 0) || !failed && name != "nil" {
					t.Errorf("failed: %v, the log has %v: %s", failed, log.Errors(), p.body)
				}
				if strings.Contains(p.body, "on fire") {
					t.Errorf("the page says what failed: %s", p.body)
				}
			}
		})
	}
	b := newBench(t, func(c *Config) {
		c.Breakers = func() []breaker.Status { panic("the guards are on fire") }
		c.Logger = burning{}
	})
	b.get("/").want(t, http.StatusOK, "Which handlers are on hold is not known: the function of console.Config.Breakers failed. The log of the service says why.")
	b.get("/letters", func(r *http.Request) { r.Header.Set("Test-Role", "panic") }).want(t, http.StatusServiceUnavailable, "Your access is not known")
}

// burning is a logger that panics.
type burning struct{ watermill.NopLogger }

func (burning) Error(string, error, watermill.LogFields) { panic("the logger is on fire") }
