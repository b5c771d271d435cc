package main

import (
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// Feature V10: a freeze from the command line is there for the breakers of the service, with its reason, and ends by
// hand.
func TestBreaker(t *testing.T) {
	s := newShop(t, incident()...)
	if got := s.pipe("breaker", "list"); got.code != 1 || !strings.Contains(got.err, "not in this database") {
		t.Errorf("a service without shared breakers: exit %d: %s", got.code, got.err)
	}
	store := testkit.Must(breaker.NewStore(t.Context(), s.db, "shop"))
	s.steps([]step{
		{0, "all messages pass", []string{"breaker", "list"}},
		{2, "--reason is empty", []string{"breaker", "open", "billing"}},
		{4, "hold the messages of the handler billing of shop in all instances?", []string{"breaker", "open", "billing", "--reason", "INC-7"}},
		{0, "the handler billing of shop: frozen", []string{"breaker", "open", "billing", "--reason", "INC-7\x1b[31m", "--yes"}},
		{0, "billing\t\tfrozen", []string{"breaker", "list"}},
		{3, "there is no freeze", []string{"breaker", "close"}},
	})
	obeyed(t, "breaker list", s.terminal(80, "", "breaker", "list", "--color", "never").out)
	frozen, err := store.List(t.Context())
	if err != nil || len(frozen) != 1 || frozen[0].Actor != "ann" || frozen[0].State != breaker.Frozen {
		t.Errorf("%+v, %v", frozen, err)
	}
	got := s.pipe("breaker", "close", "billing", "--reason", "done", "--json")
	frozen, err = store.List(t.Context())
	if err != nil || got.code != 0 || len(frozen) != 0 {
		t.Errorf("exit %d: %s; %v, %v", got.code, got.err, frozen, err)
	}
}
