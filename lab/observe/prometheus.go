package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/observe/alerts"
)

// server is a Prometheus that watches the instances.
type server struct {
	address string
	client  *http.Client
	stop    func() error
}

// target is where an instance has its metrics.
type target struct{ instance, address string }

func startPrometheus(folder string, targets []target) (*server, error) {
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: " +
		"[spillway.rules.yml]\nscrape_configs:\n  - job_name: shop\n    static_configs:\n")
	for _, t := range targets {
		fmt.Fprintf(&config, "      - {targets: [%q], labels: {instance: %q}}\n", t.address, t.instance)
	}
	for name, content := range map[string]string{"prometheus.yml": config.String(),
		"spillway.rules.yml": Hurry(string(alerts.Rules()))} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	s := &server{client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}}
	var err error
	s.address, s.stop, err = services.StartPrometheus(filepath.Join(folder, "prometheus"),
		filepath.Join(folder, "prometheus.yml"))
	return s, err
}

// ask calls the HTTP API of Prometheus. Into receives what is in "data".
func (s *server) ask(ctx context.Context, path string, values url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.address+path+"?"+values.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: into}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %s: %w", path, response.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return nil
}

// firing is an alert that fires.
type firing struct {
	Labels, Annotations map[string]string
	State               string
}

func (s *server) firing(ctx context.Context) (found []firing, err error) {
	var data struct{ Alerts []firing }
	if err := s.ask(ctx, "/api/v1/alerts", nil, &data); err != nil {
		return nil, err
	}
	for _, one := range data.Alerts {
		if one.State == "firing" {
			found = append(found, one)
		}
	}
	return found, nil
}

// series is one line of a panel: a value for each second, from the first to the last that it has.
type series struct {
	Metric map[string]string
	Values [][2]any
}

// last returns the series of a query over a time.
func (s *server) last(ctx context.Context, query string, since time.Time) ([]series, error) {
	var data struct{ Result []series }
	now := time.Now()
	err := s.ask(ctx, "/api/v1/query_range", url.Values{"query": {query}, "step": {"1"},
		"start": {fmt.Sprint(since.Unix())}, "end": {fmt.Sprint(now.Unix())}}, &data)
	return data.Result, err
}

func (s *server) close() error {
	s.client.CloseIdleConnections()
	return s.stop()
}
