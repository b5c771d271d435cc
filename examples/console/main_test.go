package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Feature V11: the demo serves its console, webhooks fail until the fix is deployed, and it ends with its context.
func TestDemo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(ctx, writer, "127.0.0.1:0", 1) }()
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(reader).ReadString('\n')
		lines <- line
		_, _ = io.Copy(io.Discard, reader)
	}()
	line := testkit.Receive(t, "the address", lines)
	home := strings.Fields(line)[4]

	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(method, path string) string {
		request := testkit.Must(http.NewRequest(method, home+path, nil))
		response := testkit.Must(client.Do(request))
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		testkit.Require(t, err == nil && response.StatusCode == http.StatusOK,
			"%s %s: status %d, %v", method, path, response.StatusCode, err)
		return string(body)
	}
	testkit.Eventually(t, "a letter", func() bool { return strings.Contains(ask(http.MethodGet, "deadletters/"), "panic") })
	ask(http.MethodGet, "deadletters/letters/1")
	page := ask(http.MethodPost, "fix")
	testkit.Check(t, strings.Contains(page, "is fixed"), "after the fix: %s", page)
	cancel()
	testkit.NoError(t, testkit.Receive(t, "the end", done))
	_ = writer.Close()
}
