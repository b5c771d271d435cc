package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a signed request, as the Standard Webhooks specification names them.
const (
	// HeaderID has Notice.ID.
	HeaderID = "Webhook-Id"
	// HeaderTimestamp has the time of the request, in seconds since 1970.
	HeaderTimestamp = "Webhook-Timestamp"
	// HeaderSignature has "v1," and the base64 of the HMAC-SHA256 of "<id>.<timestamp>.<body>".
	HeaderSignature = "Webhook-Signature"
)

const version = "v1,"

// DefaultTolerance is how far the time of a request may be from that of the receiver, for Verify.
const DefaultTolerance = 5 * time.Minute

var (
	// ErrSignature is the error of a request that was not signed with the secret, or was changed.
	ErrSignature = errors.New("webhook: the request has no signature of this secret")
	// ErrTimestamp is the error of a request that is too old, or from the future: it may be a copy that is sent again.
	ErrTimestamp = errors.New("webhook: the time of the request is too far from now")
)

// sign adds the headers of a signed request.
func sign(header http.Header, secret []byte, id string, at time.Time, body []byte) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	header.Set(HeaderID, id)
	header.Set(HeaderTimestamp, timestamp)
	header.Set(HeaderSignature, version+base64.StdEncoding.EncodeToString(mac(secret, id, timestamp, body)))
}

func mac(secret []byte, id, timestamp string, body []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(id + "." + timestamp + "."))
	h.Write(body)
	return h.Sum(nil)
}

// Verify returns nil if a request was signed with secret and is at most tolerance old. It is for the receiver of a
// webhook. body is the body as it was received. Signatures are compared in constant time. To change the secret, verify
// with the new one and then with the old one. A tolerance of 0 is DefaultTolerance. Keep HeaderID for as long to drop
// what is sent again within it.
func Verify(secret []byte, header http.Header, body []byte, tolerance time.Duration) error {
	if tolerance <= 0 {
		tolerance = DefaultTolerance
	}
	id, timestamp := header.Get(HeaderID), header.Get(HeaderTimestamp)
	if len(secret) == 0 || id == "" {
		return ErrSignature
	}
	want, found := mac(secret, id, timestamp, body), false
	for _, signature := range strings.Fields(header.Get(HeaderSignature)) {
		encoded, ok := strings.CutPrefix(signature, version)
		got, err := base64.StdEncoding.DecodeString(encoded)
		if ok && err == nil && hmac.Equal(got, want) {
			found = true
		}
	}
	if !found {
		return ErrSignature
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > tolerance {
		return ErrTimestamp
	}
	return nil
}
