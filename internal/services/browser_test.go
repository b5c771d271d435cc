package services

import (
	"os"
	"strings"
	"testing"
)

// A missing browser is a hole in the tests: in CI it fails them.
func TestMissingBrowser(t *testing.T) {
	unset(t)
	t.Setenv("PATH", t.TempDir())
	t.Setenv("SPILLWAY_AXE_FOLDER", t.TempDir())
	for name, ask := range map[string]func(testing.TB){"chromium": func(t testing.TB) { Chromium(t) }, "axe": func(t testing.TB) { Axe(t) }} {
		t.Setenv("CI", "")
		if got := try(ask); got.failed != "" || !strings.Contains(got.skipped, "install browser") {
			t.Errorf("%s at a developer's: %+v", name, got)
		}
		t.Setenv("CI", "true")
		if got := try(ask); got.skipped != "" || !strings.Contains(got.failed, "install browser") {
			t.Errorf("%s in CI: %+v", name, got)
		}
		t.Setenv("SPILLWAY_EMBEDDED", "1")
		if got := try(ask); got.failed != "" || got.skipped == "" {
			t.Errorf("%s embedded: %+v", name, got)
		}
		t.Setenv("SPILLWAY_EMBEDDED", "")
	}
}

// browser.sh and this package name the same version of axe-core.
func TestAxeVersion(t *testing.T) {
	script, err := os.ReadFile("browser.sh")
	if err != nil || !strings.Contains(string(script), "\naxe_version="+axeVersion+"\n") {
		t.Errorf("browser.sh fetches another version than %s, %v", axeVersion, err)
	}
}
