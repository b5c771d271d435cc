package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/internal/operate/packed"
)

// answer is what a route gives: JSON, bytes, or a stream. Nothing of JSON is sent before all of it is there.
type answer struct {
	status   int // if not 200
	json     any
	location string // within the API
	next     string // the cursor of the next page
	file     *file
	stream   func(http.ResponseWriter)
}

// file is bytes that are sent as they are.
type file struct {
	kind  string // the media type
	name  string // under which a browser stores it
	size  int    // if known
	write func(io.Writer) error
}

// send sends an answer. An error means that nothing was sent.
func (h *Handler) send(r *request, a answer) error {
	switch {
	case a.stream != nil:
		a.stream(r.writer)
		return nil
	case a.file != nil:
		return r.sendFile(a.file)
	}
	body, err := json.Marshal(a.json)
	if err != nil {
		return &unwritable{err}
	}
	header := r.writer.Header()
	header.Set("Content-Type", "application/json")
	if a.location != "" {
		header.Set("Location", r.root+a.location)
	}
	if a.next != "" {
		header.Set("Link", "<"+r.nextPage(a.next)+`>; rel="next"`)
	}
	status := max(a.status, http.StatusOK)
	if r.http.Method != post {
		tag := tagOf(body)
		header.Set("ETag", tag)
		if matches(r.http.Header.Get("If-None-Match"), tag) {
			r.writer.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	header.Set("Vary", "Accept-Encoding")
	r.write(status, packed.For(r.http, header, append(body, '\n')))
	return nil
}

// unwritable is the error of an answer that JSON does not have. The database is not to blame.
type unwritable struct{ error }

func (u *unwritable) Unwrap() error { return u.error }

// write sends a body, if the method has one.
func (r *request) write(status int, body []byte) {
	r.writer.Header().Set("Content-Length", strconv.Itoa(len(body)))
	r.writer.WriteHeader(status)
	if r.http.Method != http.MethodHead {
		_, _ = r.writer.Write(body) // the reader may be gone
	}
}

// nextPage is the address of the next page of a list, relative to the one that was asked for.
func (r *request) nextPage(cursor string) string {
	q := url.Values{}
	for name, values := range r.query {
		q[name] = values
	}
	q.Del("after")
	q.Set("cursor", cursor)
	return "?" + q.Encode()
}

// sendFile sends a file. If it breaks off, the connection is cut, so that nothing takes the beginning for the whole.
func (r *request) sendFile(f *file) error {
	header := r.writer.Header()
	header.Set("Content-Type", f.kind)
	header.Set("Content-Disposition", `attachment; filename="`+f.name+`"`)
	if f.size > 0 {
		header.Set("Content-Length", strconv.Itoa(f.size))
	}
	r.writer.WriteHeader(http.StatusOK)
	if r.http.Method == http.MethodHead {
		return nil
	}
	if err := f.write(r.writer); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// bytesOf are bytes as a file.
func bytesOf(kind, name string, body []byte) answer {
	return answer{file: &file{kind: kind, name: name, size: len(body), write: func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(body))
		return err
	}}}
}

// tagOf is the weak tag of an answer.
func tagOf(body []byte) string {
	sum := sha256.Sum256(body)
	return `W/"` + hex.EncodeToString(sum[:12]) + `"`
}

// matches reports whether a list of tags has one.
func matches(list, tag string) bool {
	for _, one := range strings.Split(list, ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}
