package services

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// axeVersion is the version that browser.sh fetches.
const axeVersion = "4.14.1"

// Chromium returns the path of Chromium. Without it the test is skipped, but with CI=true it fails.
func Chromium(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		missingBrowser(t, err)
	}
	return path
}

// Axe returns the script of axe-core. Without it the test is skipped, but with CI=true it fails.
func Axe(t testing.TB) string {
	t.Helper()
	folder := os.Getenv("SPILLWAY_AXE_FOLDER")
	if folder == "" {
		folder = os.Getenv("SPILLWAY_SERVICES_DIR")
	}
	if folder == "" {
		folder = fmt.Sprintf("/var/tmp/spillway-services-%d", os.Getuid())
	}
	script, err := os.ReadFile(filepath.Join(folder, "axe-core-"+axeVersion, "axe.min.js"))
	if err != nil {
		missingBrowser(t, err)
	}
	return string(script)
}

func missingBrowser(t testing.TB, err error) {
	t.Helper()
	const say = "services: %sno browser: run \"internal/testing/services/services.sh install browser\": %v"
	if inCI() && os.Getenv("SPILLWAY_EMBEDDED") != "1" {
		t.Fatalf(say, "", err)
	}
	t.Skipf(say, "NOT TESTED: ", err)
}
