package dashboard_test

import (
	"encoding/json"
	"fmt"
	"log"

	"github.com/watermill-spillway/spillway/observe/dashboard"
)

func ExampleGrafana() {
	// What Grafana's HTTP API takes at /api/dashboards/db.
	body, err := json.Marshal(map[string]any{"dashboard": json.RawMessage(dashboard.Grafana()), "overwrite": true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(json.Valid(body))
	// Output: true
}
