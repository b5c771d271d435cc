package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/poison"
)

// Feature V11: with more causes than one page has, the overview counts all that are new, and its chart all that arrived.
func TestOverviewOfManyCauses(t *testing.T) {
	b := newBench(t)
	now := time.Now()
	b.console.now = func() time.Time { return now }
	const causes = 1200
	var messages []*message.Message
	for i := range causes {
		messages = append(messages, fixture.Letter(fmt.Sprint("id-", i), "{}", func(l *poison.Letter) {
			l.Failure.Reason = fmt.Sprintf("reason_%c%c%c%c", 'a'+i/1000, 'a'+i/100%10, 'a'+i/10%10, 'a'+i%10)
			l.Failure.FirstFailedAt, l.Failure.LastFailedAt = now, now
		}))
	}
	fixture.Publish(t, b.store, "orders.dlq", messages...)
	page := b.get("/").want(t, http.StatusOK)
	for name, want := range map[string]string{"Arrived in the last hour": "1,200", "New causes in the last hour": "1,200"} {
		_, after, _ := strings.Cut(page.body, "<dt>"+name+"</dt><dd>")
		got, _, _ := strings.Cut(after, "</dd>")
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	seen := map[string]bool{}
	path := "/causes?rows=500"
	for range 4 {
		list := b.get(path).want(t, http.StatusOK)
		for _, cell := range list.elements(t, "td") {
			if attribute(cell, "data-label") == "Cause" {
				seen[textOf(cell)] = true
			}
		}
		next := ""
		for _, link := range list.elements(t, "a") {
			if textOf(link) == "Show more causes" {
				next = "/" + strings.TrimLeft(attribute(link, "href"), "./")
			}
		}
		if path = next; path == "" {
			break
		}
	}
	if len(seen) != causes {
		t.Errorf("the pages of causes have %d of them, want %d", len(seen), causes)
	}
}
