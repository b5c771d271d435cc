package apiclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"

	"github.com/watermill-spillway/spillway/internal/operate"
)

// Here returns a Client of an API in the same process. Its errors are those of the API, as they are.
func Here(api http.Handler, program string) *Client {
	return &Client{config: Config{Program: program, MostRead: math.MaxInt64 - 1, Brief: true}, here: true,
		at: &url.URL{Scheme: "http", Host: "localhost"}, http: &http.Client{Transport: inProcess{api}}}
}

// inProcess calls a handler.
type inProcess struct{ handler http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &recorded{header: http.Header{}}
	p.handler.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil && w.status == 0 {
		return nil, err // there was no answer
	}
	return &http.Response{StatusCode: max(w.status, http.StatusOK), Header: w.header, Request: r,
		Body: io.NopCloser(&w.body)}, nil
}

// recorded is an answer.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorded) Header() http.Header { return w.header }

func (w *recorded) Write(some []byte) (int, error) {
	w.status = max(w.status, http.StatusOK)
	return w.body.Write(some)
}

func (w *recorded) WriteHeader(status int) { w.status = max(w.status, status) }

// asItWas returns the error of the API for a refusal, if it says more than the refusal does.
func asItWas(ctx context.Context, refusal error) error {
	err := operate.Told(ctx)
	if err == nil || errors.As(err, new(*operate.Problem)) || errors.As(err, new(*operate.Wrong)) ||
		errors.As(err, new(*operate.Forbidden)) {
		return refusal
	}
	return err
}
