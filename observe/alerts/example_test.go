package alerts_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/watermill-spillway/spillway/observe/alerts"
)

func ExampleRules() {
	folder, err := os.MkdirTemp("", "rules-")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	// A folder that is in rule_files of prometheus.yml.
	if err := os.WriteFile(filepath.Join(folder, "spillway.rules.yml"), alerts.Rules(), 0o644); err != nil {
		log.Fatal(err)
	}
	fmt.Println("POST /-/reload")
	// Output: POST /-/reload
}
