// Package documents_test checks what people read: links, names, Go in Markdown, words, the tables of fields and of log
// lines.
package documents_test

import (
	"fmt"
	"os"
	"testing"
)

const module = "github.com/watermill-spillway/spillway"

// All paths are those of the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
