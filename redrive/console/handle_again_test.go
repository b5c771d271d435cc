package console

import (
	"net/http"
	"testing"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
)

// Features V11, V7: a person lets the handler run again for letters of outputs that could not be published. The
// campaign's page says so. Where the receiver's keys are not in the letters' database, the form says so.
func TestHandleAgain(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("a", "{}", func(l *poison.Letter) { l.Failure.Reason = classify.ReasonOutput }))
	form := with(b.get("/redrive?"+b.everything()).fields(t), "handle-again", "1", "reason", "INC-7", "do", "start")
	refused := b.post("/redrive", form)
	refused.want(t, http.StatusBadRequest, "The keys of the idempotent receiver are in another database. Leave this out if the handlers have no receiver.", `name="handle-again" value="1" checked`)
	if len(b.all()) > 0 {
		t.Fatal("a campaign began")
	}
	if _, err := idempotency.NewStore(t.Context(), b.db, "shop"); err != nil {
		t.Fatal(err)
	}
	at := b.post("/redrive", form).goes(t, "campaigns/")
	b.get(at).want(t, http.StatusOK, "Run handlers again whose outputs could not be published; what they wrote is written twice")
	if begun := b.all(); len(begun) != 1 || !begun[0].Request.HandleAgain {
		t.Errorf("%+v", begun)
	}
}
