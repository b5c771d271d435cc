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
		testkit.Must(b.store.Inside().Record(t.Context(), nil, string(letters.EventShown), letters.Act{By: by, Reason: "look"}, seqs...))
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
	const why = "Which handlers are on hold is not known: the function of console.Config.Breakers failed. The log of the service says why."
	for says, guards := range map[string]func() []breaker.Status{
		why:                      func() []breaker.Status { panic("the guards are on fire") },
		"No handler is on hold.": none.Health,
	} {
		log := new(testkit.Log)
		b := newBench(t, func(c *Config) { c.Breakers, c.Logger = guards, log })
		b.fill(1, 12)
		for _, live := range []string{"", "1"} {
			p := b.get("/", func(r *http.Request) { r.Header.Set("Spillway-Live", live) })
			p.want(t, http.StatusOK, ">12</a>", "no_such_customer", "Handlers on hold", says, "No campaign runs.", "Nothing was done with letters yet.")
			testkit.Check(t, (len(log.Errors()) > 0) == (says == why) && !strings.Contains(p.body, "on fire"),
				"the log has %v: %s", log.Errors(), p.body)
		}
	}
	b := newBench(t, func(c *Config) {
		c.Breakers = func() []breaker.Status { panic("the guards are on fire") }
		c.Logger = burning{}
	})
	b.get("/").want(t, http.StatusOK, why)
	b.get("/letters", func(r *http.Request) { r.Header.Set("Test-Role", "panic") }).want(t, http.StatusServiceUnavailable, "Your access is not known")
}

// burning is a logger that panics.
type burning struct{ watermill.NopLogger }

func (burning) Error(string, error, watermill.LogFields) { panic("the logger is on fire") }

// Numbers are grouped, and the first one chooses between the forms.
func TestNumbersInWords(t *testing.T) {
	for want, got := range map[string]string{
		"1 letter": lettersOf(1), "1,312 letters": lettersOf(1312), "0 letters": lettersOf(0),
		"-1,234,567": grouped(-1_234_567), "999": grouped(999), "1,000": grouped(1000),
		"1 byte": size(1), "1.0 KiB": size(1024), "10.0 MiB": size(10 << 20), "2.0 GiB": size(2 << 30),
		"in the future": age(-1), "less than a minute": age(1), "1 min": age(90e9), "47 hours": age(47 * 3600e9), "2 days": age(50 * 3600e9),
	} {
		testkit.Check(t, got == want, "%q, want %q", got, want)
	}
}
