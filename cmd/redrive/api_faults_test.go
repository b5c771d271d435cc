package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// instead lets something else answer, and returns what answered before.
func (a *apiServer) instead(handler http.HandlerFunc) (before http.HandlerFunc) {
	return *a.behind.Swap(&handler)
}

// Feature V13: a token that is missing, wrong or no secret, and a right too little, are refused with what to do.
func TestAPIAccess(t *testing.T) {
	s := newShop(t, incident()...)
	a := s.overAPI()
	a.token(t, "wrong-token")
	s.steps([]step{{1, "gives no right for the token of " + a.file, []string{"causes"}}})
	a.token(t, "")
	s.steps([]step{{2, "is empty", []string{"causes"}}})
	a.token(t, "secret token")
	s.steps([]step{{2, "one line of visible ASCII", []string{"causes"}}})
	a.token(t, "token-of-ann")
	testkit.NoError(t, os.Chmod(a.file, 0o644))
	s.steps([]step{{2, "chmod 600", []string{"causes"}}})
	testkit.NoError(t, os.Chmod(a.file, 0o600))
	s.steps([]step{
		{1, "no token was sent: name the file of yours with --token-file", []string{"causes", "--url", a.URL + "/letters", "--token-file", ""}},
		{2, "--token-file", []string{"causes", "--token-file", "/nowhere"}},
		{1, "there is no API of a console", []string{"causes", "--url", a.URL, "--token-file", a.file}},
		{1, "does not answer", []string{"causes", "--url", "http://127.0.0.1:1/", "--token-file", a.file}},
		{2, "--service is \"other\", and this API has the letters of \"shop\"", []string{"causes", "--service", "other"}},
		{2, "the API knows who you are", []string{"causes", "--by", "bob"}},
		{2, "the server opens sealed letters", []string{"causes", "--keys", "k"}},
		{2, "an API has a list", []string{"redrive", "--all", "--allow", "orders", "--reason", "x", "--yes"}},
		{2, "give --db", []string{"purge", "--status", "discarded", "--older-than", "0s", "--reason", "x", "--yes"}},
		{2, "give --db", []string{"reseal", "--keys", "k", "--dry-run"}},
		{2, "give --db", []string{"export"}},
		{1, "share no outages", []string{"breaker", "open", "--reason", "x", "--yes"}},
		{1, "share no outages", []string{"breaker", "list"}},
		{2, "--reason is empty", []string{"show", "4", "--unmasked"}},
		{0, `"card": "4111"`, []string{"show", "4", "--unmasked", "--reason", "INC-7"}},
		{0, "INC-7", []string{"audit", "--kind", "shown", "--who", "ann"}},
		{0, "id-2", []string{"list", "--after", "2", "--limit", "1"}},
		{3, "no letter has", []string{"show", "999"}},
	})
	a.token(t, "token-of-bob")
	s.steps([]step{{1, "right to operate", []string{"discard", "1", "--reason", "x", "--yes"}}, {5, "you may look, and change nothing", []string{"doctor"}}})
	a.token(t, "token-of-carl")
	s.steps([]step{{0, "does not show you payloads", []string{"show", "4"}}})
	testkit.Returns(t, 5)(s.store.Count(t.Context(), letters.Filter{}))
	seen := fmt.Sprint(s.pipe("show", "4"), s.pipe("discard", "1", "--reason", "x", "--yes"))
	testkit.Check(t, !strings.Contains(seen, "token-of"), "a token is in the output: %s", seen)
}

// Feature V13: a server that is no console, is hostile, or sends the token elsewhere, gets nothing done and nothing obeyed.
func TestAPIHostile(t *testing.T) {
	s := newShop(t, incident()...)
	a := s.overAPI()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a request went elsewhere: %v", r.Header)
	}))
	t.Cleanup(elsewhere.Close)
	problem := func(w http.ResponseWriter, status int, detail string) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "urn:spillway:invalid", "title": "x", "status": status, "detail": detail})
	}
	for says, handler := range map[string]http.HandlerFunc{
		"sends this request elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/?password=hunter2", http.StatusTemporaryRedirect)
		},
		"but text/html": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>\x1b[2J") },
		"cannot read": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "{\x1b")
		},
		"owned": func(w http.ResponseWriter, _ *http.Request) {
			problem(w, http.StatusBadRequest, "\x1b]0;owned\x07\u202e")
		},
		"does not answer": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"does not know you: expired: get a new one": func(w http.ResponseWriter, _ *http.Request) {
			problem(w, http.StatusUnauthorized, "expired")
		},
	} {
		a.instead(handler)
		got := s.pipe("discard", "1", "--reason", "x", "--yes")
		testkit.Check(t, got.code != 0 && strings.Contains(got.err, says),
			"exit %d: %s, want %q", got.code, got.err, says)
		obeyed(t, says, got.err)
	}
	testkit.Returns(t, 5)(s.store.Count(t.Context(), letters.Filter{}))

	secured := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { problem(w, 400, "over TLS") }))
	secured.Config.ErrorLog = log.New(io.Discard, "", 0)
	secured.StartTLS()
	t.Cleanup(secured.Close)
	ca := t.TempDir() + "/ca.pem"
	testkit.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secured.Certificate().Raw}), 0o600))
	s.steps([]step{
		{1, "with --ca", []string{"causes", "--url", secured.URL}},
		{2, "over TLS", []string{"causes", "--url", secured.URL, "--ca", ca}},
		{2, "no certificate", []string{"causes", "--url", secured.URL, "--ca", a.file}},
	})
}

// Feature V13: what is sent twice, because the answer was lost, takes effect once.
func TestAPIAnswersLost(t *testing.T) {
	s := newShop(t, incident()...)
	a := s.overAPI()
	var lost atomic.Int32
	console := *a.behind.Load()
	a.instead(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && lost.Add(1) <= 2 { // net/http sends it again by itself, once
			console(httptest.NewRecorder(), r) // it is done, and the connection breaks
			panic(http.ErrAbortHandler)
		}
		console(w, r)
	})
	s.steps([]step{{0, "discarded 3 letters", []string{"discard", "--handler", "billing", "--reason", "INC-7", "--yes"}}})
	lost.Store(0)
	s.steps([]step{{0, "is running: 1 letter", []string{"redrive", "4", "--reason", "INC-7", "--yes", "--detach"}}})
	all := testkit.Must(s.campaigns().List(t.Context(), campaigns.List{}))
	testkit.Check(t, len(all) == 1 && all[0].Request.By == "ann", "%+v", all)
}

// Feature V13: an older command passes over what a newer server says more. What an older server lacks is named.
func TestAPIVersions(t *testing.T) {
	s := newShop(t, incident()...)
	a := s.overAPI()
	server := *a.behind.Load()
	commands := [][]string{{"causes"}, {"list", "--status", "all"}, {"show", "4"}, {"audit", "--json"}, {"campaigns"}, {"policies"}, {"sequences"},
		{"redrive", "--all", "--dry-run"}, {"doctor"}, {"breaker", "list"}, {"erase", "--id", "id-0", "--dry-run"}}
	said := func() (all []result) {
		for _, args := range commands {
			all = append(all, s.pipe(args...))
		}
		return all
	}
	before := said()
	a.instead(func(w http.ResponseWriter, r *http.Request) { // newer
		seen := httptest.NewRecorder()
		r.Header.Del("Accept-Encoding")
		server(seen, r)
		body := seen.Body.Bytes()
		if kind := seen.Header().Get("Content-Type"); kind == "application/json" {
			var answer any
			testkit.NoError(t, json.Unmarshal(body, &answer))
			body = testkit.Must(json.Marshal(more(answer)))
		}
		w.Header().Set("Content-Type", seen.Header().Get("Content-Type"))
		w.WriteHeader(seen.Code)
		_, _ = w.Write(body)
	})
	took := regexp.MustCompile(`in [0-9.]+[mµ]?s`)
	for i, after := range said() {
		was, is := took.ReplaceAllString(before[i].out, "in 1s"), took.ReplaceAllString(after.out, "in 1s")
		testkit.Check(t, was == is && before[i].code == after.code,
			"%v: exit %d: %s%s, and before %s", commands[i], after.code, after.out, after.err, before[i].out)
	}
	a.instead(func(w http.ResponseWriter, r *http.Request) { // newer, with values that this command does not know
		kind := func(text string) { w.Header().Set("Content-Type", "application/json"); fmt.Fprint(w, text) }
		switch {
		case strings.HasSuffix(r.URL.Path, "/causes"):
			kind(`{"causes":[{"cause":"9f3a","count":3,"class":"astral"}]}`)
		case strings.HasSuffix(r.URL.Path, "/audit"):
			kind(`{"events":[{"number":1,"at":"2026-01-01T00:00:00Z","kind":"beamed","seq":0}]}`)
		case strings.HasSuffix(r.URL.Path, "/campaigns"):
			kind(`{"campaigns":[{"id":"9f3a12bc-0000-4000-8000-000000000001","state":"dreaming","request":{},"created_at":"2026-01-01T00:00:00Z"}]}`)
		default:
			server(w, r)
		}
	})
	s.steps([]step{{0, "9f3a\t3", []string{"causes"}}, {0, "beamed", []string{"audit"}}, {0, "dreaming", []string{"campaigns"}}})

	var without atomic.Value // the route that an older server lacks
	without.Store("none")
	a.instead(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/api/v1/"+without.Load().(string)) {
			r.URL.Path = strings.Replace(r.URL.Path, "/api/v1/", "/api/v1/none/", 1)
		}
		server(w, r)
	})
	for _, row := range []struct {
		route string
		args  []string
	}{
		{"policies", []string{"policies"}}, {"sequences", []string{"sequences"}},
		{"outages", []string{"breaker", "open", "x", "--reason", "x", "--yes"}},
		{"erasures", []string{"erase", "--id", "id-0", "--reason", "x", "--yes"}},
		{"discards", []string{"discard", "1", "--reason", "x", "--yes"}},
	} {
		without.Store(row.route)
		s.pipe(row.args...).wants(t, 1, "has no "+row.route, ": it is API 1.0, and this is redrive ")
	}
	a.instead(func(w http.ResponseWriter, r *http.Request) { // the command has a field more than the server knows
		if r.Method == http.MethodPost {
			body := testkit.Must(io.ReadAll(r.Body))
			r.Body = io.NopCloser(bytes.NewReader(append([]byte(`{"colour":1,`), body[1:]...)))
		}
		server(w, r)
	})
	s.steps([]step{{1, "does not take colour: it is API 1.0, and this is redrive ", []string{"discard", "1", "--reason", "x", "--yes"}},
		{1, "does not take colour", []string{"redrive", "4", "--reason", "x", "--yes"}}})
	testkit.Returns(t, 5)(s.store.Count(t.Context(), letters.Filter{}))
}

// more adds a field to each object, but for those whose names are values.
func more(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if _, object := value.(map[string]any); !object || !slices.Contains([]string{"letters", "campaigns", "tables", "metadata", "set"}, name) {
				v[name] = more(value)
			}
		}
		v["colour"] = map[string]any{"a": 1}
	case []any:
		for i := range v {
			v[i] = more(v[i])
		}
	}
	return v
}

// Feature V13: a watch waits for a server that goes away, and ends if it does not know the person any more.
func TestAPIWatch(t *testing.T) {
	s := newShop(t, incident()...)
	a := s.overAPI()
	var c operate.CampaignData
	began := s.pipe("redrive", "--handler", "billing", "--reason", "INC-7", "--yes", "--detach", "--json")
	testkit.NoError(t, json.Unmarshal([]byte(began.out), &c))
	for _, watch := range []struct {
		fault http.HandlerFunc
		says  string
		code  int
	}{
		{func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, "redrive watch " + c.ID[:8] + " goes on watching", 1},
		{func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "the API answers again", 0},
	} {
		cmd := exec.Command(binary, "watch", c.ID, "--json")
		cmd.Env = s.env
		out, errs := testkit.Must(os.Create(t.TempDir()+"/out")), testkit.Must(os.Create(t.TempDir()+"/errs"))
		cmd.Stdout, cmd.Stderr = out, errs
		read := func(file *os.File) string { return string(testkit.Must(os.ReadFile(file.Name()))) }
		testkit.NoError(t, cmd.Start())
		testkit.Eventually(t, "it is watched", func() bool { return read(out) != "" })
		console := a.instead(watch.fault)
		if watch.code == 0 {
			testkit.Eventually(t, "it says so", func() bool { return strings.Contains(read(errs), "the API does not answer") })
			s.works(&target{})
			a.instead(console)
		}
		code := s.code(cmd.Wait())
		result{read(out), read(errs), code}.wants(t, watch.code, watch.says)
		a.instead(console)
	}
}
