package idempotency_test

import (
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/idempotency"
)

// Feature I6, bad input: a handler's version without a key is an error that names the handler.
func TestHandlerKeyConfig(t *testing.T) {
	config := idempotency.ReceiverConfig{Handlers: map[string]idempotency.HandlerKey{"prices": {Version: idempotency.VersionMetadata("v")}}}
	_, err := idempotency.NewReceiver(storeOn(openWithEffects(t)), config)
	if err == nil || !strings.Contains(err.Error(), `ReceiverConfig.Handlers["prices"].Version is set, and Key is not`) {
		t.Error(err)
	}
}
