package console

import (
	"net/http"
	"testing"
)

// Feature V11: the overview has the numbers, the causes of the last hour and what was done.
func TestOverview(t *testing.T) {
	b := newBench(t)
	b.get("/").want(t, http.StatusOK, "no letter waits", text("overview.arrivals.none"))
	b.fill(1, 1312)
	p := b.get("/")
	p.want(t, http.StatusOK, ">1,312</a>", "no_such_customer", "<svg", `href="./letters?cause=`)
}
