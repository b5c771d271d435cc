package main

import (
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// A flag or an argument that is given empty is refused, beside other flags too: it is what a shell makes of a variable that is not set.
func TestEmptyValues(t *testing.T) {
	s := newShop(t, incident()...)
	act := []string{"--topic", "orders", "--reason", "INC-1", "--yes"}
	for _, c := range []struct{ says, line string }{
		{"--cause is empty: give a value, or leave the flag out", "discard --cause="},
		{"--cause is empty", "discard --cause a --cause="},
		{`--failure-reason is "f,", which has an empty value`, "discard --failure-reason f,"},
		{"--not-topic is empty", "discard --not-topic="},
		{"--since is empty", "discard --since="},
		{"--text is empty", "redrive --text="},
		{"--status is empty", "redrive --status="},
		{"--edit is empty", "redrive --edit="},
		{"--edit-func is empty", "redrive --edit-func="},
		{"--unset is empty", "redrive --unset="},
		{"--to is empty", "redrive --to="},
		{"--not-before is empty", "redrive --not-before="},
		{"--payload is empty", "purge --status waiting --older-than 0s --payload="},
		{"--stack is empty", "purge --status waiting --older-than 0s --stack="},
		{"--id is empty", "list --id="},
		{"--handler is empty", "export --handler="},
		{"--until is empty", "causes --until="},
		{"--metadata is empty", "erase --id id-0 --metadata="},
		{"--id is empty", "erase --id late --id="},
		{"--from is empty", "reseal --keys k --from="},
		{"--edit is empty", "diff 1 --set a=b --edit="},
		{"--who is empty", "audit --who="},
		{"--group is empty", "drain orders.dlq --broker sql --allow orders --group="},
		{"an argument is empty", "guard open ''"},
		{"an argument is empty", "show ''"},
		{"an argument is empty", "redrive 1 ''"},
	} {
		args := strings.Fields(strings.ReplaceAll(c.line, "''", "\x00"))
		for i := range args {
			args[i] = strings.Trim(args[i], "\x00")
		}
		if args[0] == "discard" || args[0] == "redrive" && len(args) == 2 || args[0] == "purge" {
			args = append(args, act...)
		}
		if got := s.pipe(args...); got.code != 2 || !strings.Contains(got.err, c.says) || got.out != "" {
			t.Errorf("%q: exit %d: %s%s; want 2 and %q", args, got.code, got.out, got.err, c.says)
		}
	}
	if n, err := s.store.Count(t.Context(), letters.Filter{}); err != nil || n != 5 {
		t.Errorf("%d letters wait, %v", n, err)
	}
	if got := s.pipe("redrive", "1", "--set", "tenant=", "--dry-run"); got.code != 0 {
		t.Errorf("metadata may be set to nothing: exit %d: %s", got.code, got.err)
	}
}
