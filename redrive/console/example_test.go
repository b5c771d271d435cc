package console_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver is the application's choice

	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/console"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

// A service mounts the console beside its own pages. A proxy in front says who sends a request.
func Example() {
	dir, err := os.MkdirTemp("", "console")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "letters.db")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		panic(err)
	}
	defer func() { _ = db.Close() }()
	store, err := letters.NewStore(context.Background(), db, settings.Shared{Service: "shop"})
	if err != nil {
		panic(err)
	}
	all, err := campaigns.New(context.Background(), store, campaigns.Config{Allow: []string{"orders"}})
	if err != nil {
		panic(err)
	}
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

	server := httptest.NewServer(mux)
	defer server.Close()
	answer, err := server.Client().Get(server.URL + "/deadletters/")
	if err != nil {
		panic(err)
	}
	defer func() { _ = answer.Body.Close() }()
	page, err := io.ReadAll(answer.Body)
	fmt.Println(answer.Status, strings.Contains(string(page), "no letter waits"), err)
	// Output: 200 OK true <nil>
}
