package api

import (
	"net/http"
	"strings"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

const keyHeader = "Idempotency-Key"

// keyOf is the Idempotency-Key of a request: a UUID, with quotes or without. The record of what a request did has its
// key, so a request that is sent twice, to whatever instance, takes effect once.
func keyOf(h http.Header) (string, error) {
	sent := h.Values(keyHeader)
	if len(sent) != 1 || strings.TrimSpace(sent[0]) == "" {
		return "", &operate.Problem{Status: http.StatusBadRequest, Type: operate.ProblemKeyMissing,
			Title: "The Idempotency-Key is missing",
			Detail: "Send one header Idempotency-Key with a new UUID, and the same " +
				"UUID if you send the request again. Then it takes effect once. Nothing was changed."}
	}
	key := strings.ToLower(strings.Trim(strings.TrimSpace(sent[0]), `"`))
	if !isUUID(key) {
		return "", &operate.Wrong{Field: keyHeader, Why: `is "` + boundedtext.Text(sent[0], 100) + `": use a UUID`,
			Value: boundedtext.Text(sent[0], 100), Remedy: "use a UUID such as 8e03978e-40d5-43e8-bc93-6894a57f9324"}
	}
	return key, nil
}

func isUUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i, char := range text {
		hyphen := i == 8 || i == 13 || i == 18 || i == 23
		if hyphen != (char == '-') || !hyphen && (char < '0' || char > '9') && (char < 'a' || char > 'f') {
			return false
		}
	}
	return true
}
