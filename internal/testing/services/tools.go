package services

import (
	"fmt"
	"net"
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

// Promtool returns the path of promtool, which comes with Prometheus. Without it the test is skipped, but with CI=true
// it fails.
func Promtool(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	switch {
	case err == nil:
		return path
	case inCI() && os.Getenv("SPILLWAY_EMBEDDED") != "1":
		t.Fatalf("services: no promtool: run \"internal/testing/services/services.sh install prometheus\": %v", err)
	default:
		t.Skipf("services: NOT TESTED: no promtool: run \"internal/testing/services/services.sh install prometheus\": %v", err)
	}
	return ""
}

// StartPrometheus installs Prometheus if it is missing, and starts one with the configuration file config, on a free
// port. It keeps its data below folder, which must not hold another's. The address is a URL. The caller must call stop.
func StartPrometheus(folder, config string) (address string, stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("services: a port for Prometheus: %w", err)
	}
	host := listener.Addr().String()
	_, port, _ := net.SplitHostPort(host)
	if err := listener.Close(); err != nil {
		return "", nil, fmt.Errorf("services: a port for Prometheus: %w", err)
	}
	if config, err = filepath.Abs(config); err != nil {
		return "", nil, fmt.Errorf("services: the configuration of Prometheus: %w", err)
	}
	environment := []string{"SPILLWAY_SERVICES_DIR=" + folder, "SPILLWAY_PROMETHEUS=", "SPILLWAY_PROMETHEUS_PORT=" + port,
		"SPILLWAY_PROMETHEUS_CONFIG=" + config}
	if out, err := run("up", "prometheus", environment...); err != nil {
		return "", nil, fmt.Errorf("services: start Prometheus: %w\n%s", err, out)
	}
	return "http://" + host, func() error {
		if out, err := run("down", "prometheus", environment...); err != nil {
			return fmt.Errorf("services: stop Prometheus: %w\n%s", err, out)
		}
		return nil
	}, nil
}
