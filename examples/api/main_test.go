package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Feature V13: a program closes the incident over HTTP alone, and so does the command, with the same record. Each request
// and each answer is what the document says.
func TestIncident(t *testing.T) {
	var first result
	for _, by := range []string{"http", "command"} {
		seen := &validator{t: t}
		r, err := run(t.Context(), by, 64, 1, seen.wrap)
		if testkit.NoError(t, err); r.check() != nil {
			t.Errorf("%+v", r)
		}
		testkit.Check(t, len(seen.used) >= 10, "the incident used %v", seen.used)
		if by == "http" {
			first = r
		} else if r.Applied != first.Applied || r.Discarded != first.Discarded || r.Entries != first.Entries {
			t.Errorf("by the command %+v, and by a program %+v", r, first)
		}
	}
}

// validator holds what goes through a handler to the document of the API.
type validator struct {
	t      *testing.T
	mu     sync.Mutex
	router routers.Router
	used   map[string]bool // operations
	doc    *openapi3.T
	// operations are all of the document.
	operations map[string]bool
}

const apiBase = "/deadletters/api/v1"

// load asks a handler for its document.
func (v *validator) load(h http.Handler) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, apiBase+"/openapi.json", nil))
	doc := testkit.Must(openapi3.NewLoader().LoadFromData(w.Body.Bytes()))
	doc.Servers = openapi3.Servers{{URL: apiBase}}
	testkit.NoError(v.t, doc.Validate(v.t.Context()))
	for _, schema := range doc.Components.Schemas { // the server sends no field that the document lacks
		if len(schema.Value.Properties) > 0 {
			schema.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: new(bool)}
		}
	}
	v.doc = doc
	v.router, v.used, v.operations = testkit.Must(gorillamux.NewRouter(doc)), map[string]bool{}, map[string]bool{}
	for _, path := range doc.Paths.Map() {
		for _, operation := range path.Operations() {
			v.operations[operation.OperationID] = true
		}
	}
}

func (v *validator) wrap(h http.Handler) http.Handler {
	v.load(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, apiBase) {
			h.ServeHTTP(w, r)
			return
		}
		body := testkit.Must(io.ReadAll(r.Body))
		r.Body = io.NopCloser(bytes.NewReader(body))
		seen := httptest.NewRecorder()
		r.Header.Del("Accept-Encoding") // the validator reads what is not compressed
		h.ServeHTTP(seen, r)
		v.check(r, body, seen)
		for name, values := range seen.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(seen.Code)
		_, _ = w.Write(seen.Body.Bytes())
	})
}

func (v *validator) check(r *http.Request, body []byte, w *httptest.ResponseRecorder) {
	v.mu.Lock()
	defer v.mu.Unlock()
	request := r.Clone(context.WithoutCancel(r.Context()))
	request.Body = io.NopCloser(bytes.NewReader(body))
	route, values, err := v.router.FindRoute(request)
	if err != nil {
		v.t.Errorf("%s %s: %v", r.Method, r.URL, err)
		return
	}
	v.used[route.Operation.OperationID] = true
	in := &openapi3filter.RequestValidationInput{Request: request, PathParams: values, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}}
	if err := openapi3filter.ValidateRequest(request.Context(), in); err != nil && w.Code < 400 {
		v.t.Errorf("%s %s is answered with %d, and the document refuses it: %v", r.Method, r.URL, w.Code, err)
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: w.Code, Header: w.Header(),
		Body: io.NopCloser(bytes.NewReader(w.Body.Bytes())), Options: in.Options}
	if err := openapi3filter.ValidateResponse(request.Context(), out); err != nil {
		v.t.Errorf("%s %s: %v\n%s", r.Method, r.URL, err, w.Body)
	}
}

// Feature V13: a body without a field that the document requires, or beyond a bound that it names, is refused.
func TestBodies(t *testing.T) {
	db, cleanUp, err := openDatabase(t.Context())
	testkit.NoError(t, err)
	t.Cleanup(func() { testkit.NoError(t, cleanUp()) })
	s, v := testkit.Must(newService(t.Context(), db)), &validator{t: t}
	l := poison.Letter{Original: message.NewMessage("order-1", []byte(`{}`)), Origin: poison.Origin{Topic: topic, Handler: "store-orders"}}
	testkit.NoError(t, s.store.Publish("orders.dlq", l.Encode()))
	v.load(s.web)
	good := map[string]any{"reason": "INC-7", "rate": 1, "version": "x", "edit": map[string]any{"set": map[string]any{"a": "b"}},
		"cause": "9f3a", "seqs": []int{1}, "ids": []string{"order-1"}, "handler": "store-orders", "note": "known"}
	send := func(path string, body map[string]any) *httptest.ResponseRecorder {
		path = strings.NewReplacer("{seq}", "1", "{id}", "8e03978e-40d5-43e8-bc93-6894a57f9324", "{name}", "none", "{cause}", "9f3a").Replace(path)
		r := httptest.NewRequest("POST", apiBase+path, bytes.NewReader(testkit.Must(json.Marshal(body))))
		r.Header.Set("Authorization", "Bearer token-bob")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", watermill.NewUUID())
		w := httptest.NewRecorder()
		s.web.ServeHTTP(w, r)
		return w
	}
	required, bounded := 0, 0
	paths := v.doc.Paths.Map()
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(paths))) { // of letters before erasures, which leave no payload
		item := paths[path]
		if item.Post == nil {
			continue
		}
		schema := item.Post.RequestBody.Value.Content.Get("application/json").Schema.Value
		whole := func(but string, value any) map[string]any {
			body := map[string]any{}
			for name, value := range good {
				if schema.Properties[name] != nil && name != but {
					body[name] = value
				}
			}
			if value != nil {
				body[but] = value
			}
			return body
		}
		refused := func(what, field string, value any) {
			t.Helper()
			w := send(path, whole(field, value))
			testkit.Check(t, w.Code == 400, "%s: %s %s: %d %s", path, field, what, w.Code, w.Body)
		}
		w := send(path, whole("", nil))
		testkit.Check(t, w.Code != 400, "%s with all that it requires: %s", path, w.Body)
		for _, field := range schema.Required {
			required++
			refused("is missing", field, nil)
		}
		for field, property := range schema.Properties {
			p := property.Value
			if p.Min != nil && *p.Min >= 0 {
				refused("is below its bound", field, *p.Min-1)
				bounded++
			}
			if p.Max != nil {
				refused("is above its bound", field, *p.Max+1)
				bounded++
			}
			if p.MinLength > 0 {
				refused("is empty", field, "")
				bounded++
			}
			if p.MaxLength != nil {
				refused("is too long", field, strings.Repeat("x", int(*p.MaxLength)+1))
				bounded++
			}
			if p.MaxItems != nil {
				many := make([]any, *p.MaxItems+1)
				for i := range many {
					if many[i] = i + 1; p.Items.Value.Type.Is("string") {
						many[i] = fmt.Sprint(i)
					}
				}
				refused("has too many", field, many)
				bounded++
			}
		}
	}
	testkit.Check(t, required >= 25 && bounded >= 40, "%d fields are required, and %d have bounds", required, bounded)
}

// Feature V13: each operation of the document is there, and answers as the document says.
func TestEveryOperation(t *testing.T) {
	db, cleanUp, err := openDatabase(t.Context())
	testkit.NoError(t, err)
	t.Cleanup(func() { testkit.NoError(t, cleanUp()) })
	s := testkit.Must(newService(t.Context(), db))
	for i := range 9 {
		l := poison.Letter{Original: message.NewMessage(fmt.Sprint("order-", i), []byte(`{"currency":"EU"}`)),
			Origin: poison.Origin{Topic: topic, Handler: "store-orders"}}
		l.Failure.Class, l.Failure.Reason, l.Failure.FirstFailedAt = classify.ClassPermanent, "unknown_currency", time.Now()
		l.Failure.History = []classify.Attempt{{At: time.Now(), Class: classify.ClassPermanent, Error: "unknown"}}
		testkit.NoError(t, s.store.Publish("orders.dlq", l.Encode()))
	}
	v := &validator{t: t}
	h := v.wrap(s.web)
	ask := func(status int, method, path, body string) (answer struct {
		ID, Version string
		Causes      []struct{ Cause string }
	}) {
		t.Helper()
		r := httptest.NewRequest(method, apiBase+path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer token-bob")
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Idempotency-Key", watermill.NewUUID())
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		testkit.Check(t, w.Code == status, "%s %s: status %d, want %d: %s", method, path, w.Code, status, w.Body)
		_ = json.Unmarshal(w.Body.Bytes(), &answer) // bytes of a payload have none
		return answer
	}
	get := func(path string) { t.Helper(); ask(200, "GET", path, "") }
	const why = `{"reason":"INC-7"}`
	for _, path := range []string{"/openapi.json", "/", "/health", "/causes?limit=5&since=2h", "/letters?status=all&class=permanent&limit=2",
		"/letters/count", "/letters/1/payload", "/campaigns", "/sequences", "/audit", "/policies"} {
		get(path)
	}
	ask(200, "POST", "/letters/1/payload", why)
	ask(200, "POST", "/plan", `{"seqs":[1],"edit":{"merge":{"currency":"EUR"},"set":{"a":"b"}},"rate":2}`)
	ask(200, "POST", "/plan", `{"filter":{"classes":["permanent"]}}`)
	version := ask(200, "GET", "/letters/1", "").Version
	ask(201, "POST", "/letters/1/edit", `{"reason":"INC-7","version":"`+version+`","edit":{"merge":{"currency":"EUR"}}}`)
	c := "/campaigns/" + ask(201, "POST", "/campaigns", `{"filter":{"topics":["orders"],"max_seq":4},"reason":"INC-7","approval":true}`).ID
	ask(409, "POST", c+"/approve", why)
	ask(409, "POST", c+"/pause", why)
	ask(409, "POST", c+"/resume", why)
	ask(200, "POST", c+"/rate", `{"reason":"INC-7","rate":3}`)
	get(c)
	ask(200, "POST", c+"/cancel", why)
	ask(200, "POST", "/discards", `{"filter":{"max_seq":9},"reason":"INC-7","seen":9}`)
	ask(200, "POST", "/restores", `{"seqs":[9],"reason":"INC-7"}`)
	for _, what := range []string{"release", "skip", "discard"} {
		ask(404, "POST", "/sequences/1/"+what, why)
	}
	ask(404, "GET", "/sequences/1", "")
	for _, what := range []string{"/policies/freeze", "/policies/thaw"} {
		ask(200, "POST", what, why)
		ask(404, "POST", strings.Replace(what, "/policies/", "/policies/none/", 1), why)
	}
	ask(404, "POST", "/policies/none/release", `{"reason":"INC-7","cause":"9f3a"}`)
	ask(200, "POST", "/causes/"+ask(200, "GET", "/causes?status=all", "").Causes[0].Cause, `{"reason":"INC-7","owner":"ann","link":"https://tickets/7","note":"known"}`)
	ask(409, "GET", "/outages", "") // the breakers of this service share none
	ask(409, "POST", "/outages/freeze", `{"reason":"INC-7","handler":"store-orders"}`)
	ask(409, "POST", "/outages/release", `{"reason":"INC-7","all":true}`)
	ask(200, "POST", "/erasures/plan", `{"metadata":{"customer":"4711"}}`)
	ask(200, "POST", "/erasures", `{"reason":"request 17","ids":["order-8"]}`)
	ask(400, "GET", "/letters?limit=x", "")
	for id := range v.operations {
		testkit.Check(t, v.used[id], "%s was not asked for", id)
	}
}
