package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/observe/notify/webhook"
)

// signed are the headers of a request, made here anew from what docs/notices.md says.
func signed(secret []byte, id string, at time.Time, body []byte) http.Header {
	timestamp := fmt.Sprint(at.Unix())
	h := hmac.New(sha256.New, secret)
	_, _ = h.Write([]byte(id + "." + timestamp + "." + string(body)))
	return http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {timestamp}, "Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(h.Sum(nil))}}
}

// Feature O4: Verify accepts what was signed, and nothing that was changed in any part, is old, or comes from the
// future.
func TestVerify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, now := []byte(`{"a":1}`), time.Now()
		testkit.NoError(t, webhook.Verify(secret, signed(secret, "1", now, body), body, 0))
		rotated := signed(secret, "1", now, body)
		rotated.Set("Webhook-Signature", "v1,AAAA v1a,xyz v2,"+rotated.Get("Webhook-Signature")+" "+rotated.Get("Webhook-Signature"))
		testkit.NoError(t, webhook.Verify(secret, rotated, body, 0)) // one of several signatures is right
		change := func(name, value string) http.Header {
			h := signed(secret, "1", now, body)
			h.Set(name, value)
			return h
		}
		for name, row := range map[string]struct {
			header http.Header
			body   string
			secret []byte
			want   error
		}{
			"another body":      {signed(secret, "1", now, body), `{"a":2}`, secret, webhook.ErrSignature},
			"another id":        {change("Webhook-Id", "2"), `{"a":1}`, secret, webhook.ErrSignature},
			"another time":      {change("Webhook-Timestamp", fmt.Sprint(now.Unix()+1)), `{"a":1}`, secret, webhook.ErrSignature},
			"no signature":      {change("Webhook-Signature", ""), `{"a":1}`, secret, webhook.ErrSignature},
			"not base64":        {change("Webhook-Signature", "v1,%%%"), `{"a":1}`, secret, webhook.ErrSignature},
			"no headers":        {http.Header{}, `{"a":1}`, secret, webhook.ErrSignature},
			"an empty secret":   {signed(nil, "1", now, body), `{"a":1}`, nil, webhook.ErrSignature},
			"another secret":    {signed([]byte("another"), "1", now, body), `{"a":1}`, secret, webhook.ErrSignature},
			"6 minutes old":     {signed(secret, "1", now.Add(-6*time.Minute), body), `{"a":1}`, secret, webhook.ErrTimestamp},
			"from the future":   {signed(secret, "1", now.Add(6*time.Minute), body), `{"a":1}`, secret, webhook.ErrTimestamp},
			"from a far future": {signed(secret, "1", time.Unix(1<<60, 0), body), `{"a":1}`, secret, webhook.ErrTimestamp},
		} {
			err := webhook.Verify(row.secret, row.header, []byte(row.body), 0)
			testkit.Check(t, errors.Is(err, row.want), "%s: %v, want %v", name, err, row.want)
		}
		time.Sleep(4 * time.Minute)
		testkit.NoError(t, webhook.Verify(secret, signed(secret, "1", now, body), body, 0))
		testkit.Is(t, webhook.Verify(secret, signed(secret, "1", now, body), body, time.Minute), webhook.ErrTimestamp)
	})
}
