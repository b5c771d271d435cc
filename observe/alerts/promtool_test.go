package alerts_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/services"
)

// Feature O3: Prometheus loads the rules as they are, and each alert fires when it should and at no other time.
func TestPromtool(t *testing.T) {
	promtool := services.Promtool(t)
	if out, err := exec.Command(promtool, "check", "rules", "spillway.rules.yml").CombinedOutput(); err != nil {
		t.Fatalf("promtool check rules: %v\n%s", err, out)
	}
	tests, err := filepath.Glob("testdata/*.yml")
	if err != nil || len(tests) == 0 {
		t.Fatalf("no files in testdata: %v", err)
	}
	if out, err := exec.Command(promtool, append([]string{"test", "rules"}, tests...)...).CombinedOutput(); err != nil {
		t.Fatalf("promtool test rules: %v\n%s", err, out)
	}
}
