package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe/notify"
	"github.com/watermill-spillway/spillway/observe/notify/webhook"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		http.DefaultClient.CloseIdleConnections()
		os.Exit(code)
	}))
}

var notice = notify.Notice{
	ID: "9f2d6c1e0b7a4d3895e1c2f3a4b5c6d7", Kind: notify.NewCause, Status: notify.StatusNew, Title: "Dead letter of a new cause: orders, billing, no_such_customer",
	Service: "shop", Instance: "shop-7d9f/1", Cause: "c0ce0946d17a33224128e177b1844d20", Topic: "orders", Handler: "billing", Class: "permanent",
	Reason: "no_such_customer", Count: 1, Total: 1, First: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC), Last: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC),
	Description: "customer 7 is unknown", Link: "https://grafana.example.com/d/spillway?var-cause=c0ce0946d17a33224128e177b1844d20",
}

var secret = []byte("a secret of more than 16 bytes")

// path is part of the URL of each server: it is what must not be shown.
const path = "/services/T0SECRET/B0SECRET/xoxsecret?token=qsecret9"

// serve starts a server that ends with the test, and returns the sink that sends to it.
func serve(t *testing.T, config webhook.Config, answer http.HandlerFunc) (send notify.Sink, server *httptest.Server) {
	t.Helper()
	server = httptest.NewServer(answer)
	t.Cleanup(server.Close)
	client := server.Client()
	if config.Client != nil {
		client.Timeout = config.Client.Timeout
	}
	config.URL, config.Client = server.URL+path, client
	send = testkit.Must(webhook.New(config))
	return send, server
}

// wantHidden fails if an error shows a part of the address.
func wantHidden(t *testing.T, err error, server *httptest.Server) {
	t.Helper()
	for _, part := range []string{"secret", "SECRET", strings.TrimPrefix(server.URL, "http://"), server.URL} {
		text := fmt.Sprintf("%v %+v %#v", err, err, err)
		testkit.Check(t, !strings.Contains(fmt.Sprint(err), part) &&
			(!strings.Contains(text, part) || strings.Contains(text, "0x")), "%q shows %q", text, part)
		for e := err; e != nil; e = errors.Unwrap(e) {
			testkit.Check(t, !strings.Contains(e.Error(), part), "an error inside shows %q: %v", part, e)
		}
	}
}

// classOf is what the Notifier makes of an error.
func classOf(t *testing.T, err error) classify.Verdict {
	t.Helper()
	return attempts.Of(testkit.Must(classify.New(classify.Config{})), err).Verdict
}

// Feature O4: a request has the notice as JSON, as docs/notices.md has it, and a signature that Verify accepts.
func TestRequest(t *testing.T) {
	var came atomic.Bool
	send, _ := serve(t, webhook.Config{Secret: secret, Header: http.Header{"authorization": {"Bearer x"}}}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var got notify.Notice
		testkit.Check(t, json.Unmarshal(body, &got) == nil && got == notice, "%s", body)
		testkit.Check(t, webhook.Verify(secret, r.Header, body, 0) == nil, "it is not signed: %v", r.Header)
		testkit.Check(t, r.Method == http.MethodPost && r.Header.Get("Authorization") == "Bearer x" &&
			r.Header.Get(webhook.HeaderID) == notice.ID && r.URL.RequestURI() == path &&
			strings.HasPrefix(r.Header.Get("Content-Type"), "application/json"), "%s %s %v", r.Method, r.URL, r.Header)
		came.Store(true)
	})
	testkit.NoError(t, send(t.Context(), notice))
	testkit.Check(t, came.Load(), "no request came")
}

// docs/notices.md has the body as it is, and each field of it.
func TestPage(t *testing.T) {
	page := testkit.Must(os.ReadFile("../../../docs/notices.md"))
	body, err := json.MarshalIndent(notice, "", "  ")
	testkit.Check(t, err == nil && strings.Contains(string(page), "```json\n"+string(body)+"\n```"),
		"docs/notices.md lacks this body:\n%s %v", body, err)
	full := notice
	full.Subject, full.Missed = "s", 1
	compact, _ := json.Marshal(full)
	var fields map[string]any
	testkit.NoError(t, json.Unmarshal(compact, &fields))
	for field := range fields {
		testkit.Check(t, strings.Contains(string(page), "`"+field+"`") ||
			strings.Contains(string(page), "  \""+field+"\": "), "docs/notices.md has no field %q", field)
	}
	for _, kind := range notify.Kinds {
		testkit.Check(t, strings.Contains(string(page), "| `"+string(kind)+"` |"),
			"docs/notices.md has no kind %q", kind)
	}
}

// Feature O4: an answer says whether the notice is sent again, and when. No error shows the address.
func TestAnswers(t *testing.T) {
	for code, want := range map[int]classify.Class{
		200: 0, 204: 0, 400: classify.ClassPermanent, 401: classify.ClassPermanent, 404: classify.ClassPermanent, 410: classify.ClassPermanent, 408: classify.ClassTransient,
		425: classify.ClassTransient, 429: classify.ClassTransient, 500: classify.ClassTransient, 503: classify.ClassTransient, 304: classify.ClassPermanent,
	} {
		send, server := serve(t, webhook.Config{}, func(w http.ResponseWriter, r *http.Request) {
			if code != 304 {
				w.Header().Set("Retry-After", "7")
			}
			w.WriteHeader(code)
			if code != 204 && code != 304 {
				_, _ = fmt.Fprintf(w, "no such hook: http://%s%s and \x1b[2J %s", r.Host, r.URL, strings.Repeat("é", 5000))
			}
		})
		err := send(t.Context(), notice)
		testkit.Check(t, (err == nil) == (code < 300), "%d: %v", code, err)
		if err == nil {
			continue
		}
		verdict := classOf(t, err)
		testkit.Check(t, verdict.Class == want && len(err.Error()) <= 1000, "%d: %v is %s", code, err, verdict.Class)
		testkit.Check(t, want != classify.ClassTransient || verdict.RetryAfter == 7*time.Second,
			"%d: tried again after %s", code, verdict.RetryAfter)
		wantHidden(t, err, server)
	}
}

// Feature O4: a redirect is followed within the host alone, with the method, and not for ever.
func TestRedirects(t *testing.T) {
	var foreign atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { foreign.Add(1) }))
	t.Cleanup(other.Close)
	for name, row := range map[string]struct {
		code int
		to   string
		ok   bool
	}{
		"307 within the host": {307, "/new", true}, "308 within the host": {308, "/new", true}, "302 becomes a GET": {302, "/new", false},
		"another host": {307, other.URL + "/new", false}, "302 to another host": {302, other.URL, false}, "for ever": {307, "", false}, "no place": {300, "none", false},
		"another scheme": {308, "https://127.0.0.1:1/", false},
	} {
		send, server := serve(t, webhook.Config{Secret: secret}, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/new" {
				body, _ := io.ReadAll(r.Body)
				err := webhook.Verify(secret, r.Header, body, 0)
				testkit.Check(t, err == nil && r.Method == http.MethodPost, "%s: %s %v", name, r.Method, err)
				return
			}
			if to := row.to; to != "none" {
				if to == "" {
					to = r.URL.Path + "x"
				}
				w.Header().Set("Location", to)
			}
			w.WriteHeader(row.code)
		})
		err := send(t.Context(), notice)
		testkit.Check(t, (err == nil) == row.ok, "%s: %v", name, err)
		if err != nil {
			class := classOf(t, err).Class
			testkit.Check(t, class == classify.ClassPermanent, "%s: %v is %s", name, err, class)
			wantHidden(t, err, server)
		}
	}
	n := foreign.Load()
	testkit.Check(t, n <= 0, "another host received %d requests", n)
}

// Feature O4: a server that hangs, floods, or closes the connection is a transient error, within the time-out.
func TestBadServers(t *testing.T) {
	release := make(chan struct{})
	for name, row := range map[string]struct {
		timeout time.Duration
		answer  http.HandlerFunc
	}{
		"hangs":        {30 * time.Millisecond, func(_ http.ResponseWriter, r *http.Request) { <-release }},
		"never begins": {30 * time.Millisecond, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); w.(http.Flusher).Flush(); <-release }},
		"closes": {0, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				err = conn.Close()
			}
			testkit.Check(t, err == nil, "%v", err)
		}},
		"floods": {0, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(503)
			for {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return // the sink has read enough
				}
			}
		}},
	} {
		send, server := serve(t, webhook.Config{Client: &http.Client{Timeout: row.timeout}}, row.answer)
		err := send(t.Context(), notice)
		testkit.Check(t, err != nil && classOf(t, err).Class == classify.ClassTransient, "%s: %v", name, err)
		wantHidden(t, err, server)
	}
	close(release)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	send, server := serve(t, webhook.Config{}, func(http.ResponseWriter, *http.Request) {})
	err := send(ctx, notice)
	testkit.Check(t, err != nil, "it was sent within a context that had ended")
	wantHidden(t, err, server)
	server.Close()
	wantHidden(t, send(t.Context(), notice), server)
}

// Feature O4: the errors of a client have no address either: of a resolver, of TLS, of a transport of the user's own.
func TestAddressIsHidden(t *testing.T) {
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(secure.Close)
	secure.Config.ErrorLog = nil
	for name, config := range map[string]webhook.Config{
		"no such host": {URL: "https://hooks.secret.invalid" + path, Client: &http.Client{Transport: &http.Transport{
			DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
				return nil, &net.DNSError{Err: "no such host", Name: strings.Split(address, ":")[0]}
			}}}},
		"unknown authority":  {URL: secure.URL + path, Client: &http.Client{Transport: &http.Transport{}}},
		"a chatty transport": {URL: "https://hooks.secret.invalid" + path, Client: &http.Client{Transport: chatty{}}},
	} {
		send := testkit.Must(webhook.New(config))
		err := send(t.Context(), notice)
		testkit.Check(t, err != nil && !strings.Contains(strings.ToLower(err.Error()), "secret") &&
			!strings.Contains(err.Error(), strings.TrimPrefix(secure.URL, "https://")), "%s: %v", name, err)
		config.Client.CloseIdleConnections()
	}
	for _, bad := range []string{"", "hooks.example.com" + path, "ftp://hooks.example.com" + path, "https://" + path, "https://hooks.example.com:xsecret/" + path, "://" + path} {
		err := testkit.Err(webhook.New(webhook.Config{URL: bad}))
		testkit.Check(t, err != nil && !strings.Contains(err.Error(), "secret/") && !strings.Contains(err.Error(), "SECRET"),
			"%q: %v", bad, err)
	}
	for says, config := range map[string]webhook.Config{
		"Secret has 5 bytes": {Secret: []byte("short")}, "Header[\"X\"]": {Header: http.Header{"X": {"a\r\nb"}}},
	} {
		config.URL = "https://hooks.example.com"
		testkit.Says(t, testkit.Err(webhook.New(config)), says)
	}
}

// chatty is a transport whose errors say everything.
type chatty struct{}

func (chatty) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("cannot reach %s: %v %s", r.URL, r.URL.Host, r.URL.Query().Get("token"))
}
