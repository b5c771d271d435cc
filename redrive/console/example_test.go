package console_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver is the application's choice

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/console"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// A service mounts the console beside its own pages. A proxy in front says who sends a request.
func Example() {
	all, closeDB := campaignsOf("shop")
	defer closeDB()
	who := func(r *http.Request) (console.Person, error) {
		return console.Person{Name: r.Header.Get("X-Forwarded-Email"), Role: console.Operate}, nil
	}

	c, err := console.New(console.Config{Campaigns: all, Access: who})
	if err != nil {
		panic(err)
	}
	local, err := console.New(console.Config{Campaigns: all, Access: console.Loopback}) // on your own machine: who is there may look
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/looking/", http.StripPrefix("/looking", local))
	mux.Handle("/deadletters/", http.StripPrefix("/deadletters", c))

	fmt.Println(strings.Contains(get(mux, "/deadletters/"), "no letter waits"))
	// Output: true
}

// One console over the databases of two services. Ann is on call for both, and only she may see what the shop has.
func ExampleFleet() {
	shop, closeShop := campaignsOf("shop")
	defer closeShop()
	mailing, closeMailing := campaignsOf("mailing")
	defer closeMailing()
	ann := func(r *http.Request) (console.Person, error) {
		if r.Header.Get("X-Forwarded-Email") != "ann@example.com" {
			return console.Person{}, nil
		}
		return console.Person{Name: "ann", Role: console.Operate}, nil
	}
	all := func(r *http.Request) (console.Person, error) {
		return console.Person{Name: r.Header.Get("X-Forwarded-Email"), Role: console.LookWithoutPayload}, nil
	}

	fleet, err := console.Fleet(map[string]console.Config{
		"shop":    {Campaigns: shop, Access: ann},
		"mailing": {Campaigns: mailing, Access: all},
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/deadletters/", http.StripPrefix("/deadletters", fleet))

	page := get(mux, "/deadletters/")
	fmt.Println(strings.Contains(page, "s/mailing/"), strings.Contains(page, "s/shop/"))
	// Output: true false
}

// campaignsOf opens the database of a service, with the name that the service has there.
func campaignsOf(service string) (all *campaigns.Campaigns, closeDB func()) {
	dir := testkit.Must(os.MkdirTemp("", "console"))
	db := testkit.Must(sql.Open("sqlite", "file:"+filepath.Join(dir, service+".db")+"?_pragma=journal_mode(WAL)"))
	store := testkit.Must(letters.NewStore(context.Background(), db, letters.Config{Service: service}))
	all = testkit.Must(campaigns.New(context.Background(), store, campaigns.Config{Allow: []string{"orders"}}))
	return all, func() { _, _ = db.Close(), os.RemoveAll(dir) }
}

// get is the page at an address.
func get(handler http.Handler, path string) string {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Body.String()
}
