package services

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A missing promtool is a hole in the tests: in CI it fails them.
func TestPromtool(t *testing.T) {
	unset(t)
	t.Setenv("PATH", t.TempDir())
	ask := func(t testing.TB) { Promtool(t) }
	if got := try(ask); got.failed != "" || !strings.Contains(got.skipped, "install prometheus") {
		t.Errorf("at a developer's: %+v", got)
	}
	t.Setenv("CI", "true")
	if got := try(ask); got.skipped != "" || !strings.Contains(got.failed, "install prometheus") {
		t.Errorf("in CI: %+v", got)
	}
	t.Setenv("SPILLWAY_EMBEDDED", "1")
	if got := try(ask); got.failed != "" || got.skipped == "" {
		t.Errorf("embedded: %+v", got)
	}
}

// Prometheus runs with the caller's configuration, until it is stopped.
func TestStartPrometheus(t *testing.T) {
	skipEmbedded(t, "prometheus")
	Promtool(t)
	folder := t.TempDir()
	config := filepath.Join(folder, "mine.yml")
	if err := os.WriteFile(config, []byte("global: {external_labels: {whose: mine}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address, stop, err := StartPrometheus(filepath.Join(folder, "prometheus"), config)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	response, err := http.Get(address + "/api/v1/status/config")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if body, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(body), "whose: mine") {
		t.Errorf("%s, %v", body, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if response, err := http.Get(address); err == nil {
		_ = response.Body.Close()
		t.Error("it answers after it was stopped")
	}

	if err := os.WriteFile(config, []byte("no configuration\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := StartPrometheus(filepath.Join(folder, "prometheus"), config); err == nil || !strings.Contains(err.Error(), "mine.yml") {
		t.Errorf("a configuration that is none: %v", err)
	}
}
