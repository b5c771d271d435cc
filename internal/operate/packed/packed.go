// Package packed compresses answers of the console and its API.
package packed

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Takes reports whether a reader takes gzip.
func Takes(r *http.Request) bool {
	for _, offer := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(offer), ";")
		if strings.TrimSpace(name) == "gzip" && strings.ReplaceAll(weight, " ", "") != "q=0" {
			return true
		}
	}
	return false
}

var compressors = sync.Pool{New: func() any { return gzip.NewWriter(io.Discard) }}

// Gzip returns a body as gzip.
func Gzip(body []byte) []byte {
	var out bytes.Buffer
	z := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(&out)
	_, _ = z.Write(body) // into memory
	_ = z.Close()
	return out.Bytes()
}

// For returns a body as a reader takes it, and says so in the header of the answer. A short one stays as it is.
func For(r *http.Request, h http.Header, body []byte) []byte {
	if len(body) <= 1<<10 || !Takes(r) {
		return body
	}
	h.Set("Content-Encoding", "gzip")
	return Gzip(body)
}
