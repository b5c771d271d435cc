package main

import (
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// A flag or an argument that is given empty is refused, beside other flags too: it is what a shell makes of a variable
// that is not set.
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
		{"an argument is empty", "breaker open ''"},
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
		if args[0] == "redrive" {
			args = append(args, "--detach") // a campaign that begins after all is not watched
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

// Feature V10: a value that cannot be ends with exit code 2, before anything is done. The error names the flag, and
// what may be given.
func TestWrongValues(t *testing.T) {
	s := newShop(t, incident()...)
	for _, c := range []struct{ says, line string }{
		{"--rate is -1 letters per second: it must be 0.001 to 1000000; 0 is no limit", "redrive --all --reason x --yes --detach --rate -1"},
		{"--rate is NaN", "redrive --all --reason x --yes --detach --rate NaN"},
		{"--max is -3: it must be at least 0", "redrive --all --reason x --yes --detach --max -3"},
		{"--canary is -1", "redrive --all --reason x --yes --detach --canary -1"},
		{"--canary-wait is 0s", "redrive --all --reason x --yes --detach --canary-wait 0s"},
		{"--stop-at is 7: it is a share", "redrive --all --reason x --yes --detach --stop-at 7"},
		{"--stop-at is 0: it is a share", "redrive --all --reason x --yes --detach --stop-at 0"},
		{"--stop-after is 0: it must be at least 1", "redrive --all --reason x --yes --detach --stop-after 0"},
		{"--concurrency is 257: it must be at most 256", "redrive --all --reason x --yes --detach --concurrency 257"},
		{"--resume-after is -1s", "redrive --all --reason x --yes --detach --resume-after -1s"},
		{"SEQs and flags that choose letters are both given", "redrive 1 --cause x --reason x --yes --detach"},
		{"SEQs and flags that choose letters are both given", "redrive 1 --all --reason x --yes --detach"},
		{"--to and first-stage are both given", "redrive --all --reason x --yes --detach --to orders --first-stage"},
		{`--to is "orders", which is not in --allow`, "redrive --all --reason x --yes --detach --to orders --allow payments"},
		{"RATE is 9e+09 letters per second", "rate 9f3a 9e9 --reason x"},
		{`--kind is "dicarded": use one of stored, `, "audit --kind dicarded"},
		{"--limit is 0: it must be at least 1", "audit --limit 0"},
		{"--after is -1: it must not be negative", "audit --after -1"},
		{`--status is "waitng": use one of all, waiting, redriven, `, "list --status waitng"},
		{"--limit is 1001: it must be at most 1000", "causes --limit 1001"},
		{"--limit is 0", "campaigns --limit 0"},
		{"--after is -1", "list --after -1"},
		{`--older-than is "-1h": use a time ago`, "purge --status discarded --older-than -1h --reason x --yes"},
		{"--until and --older-than are both given", "purge --status discarded --older-than 1h --until 2h --reason x --yes"},
		{"--max is -1", "drain orders.dlq --allow orders --max -1"},
		{"--rate is -1", "drain orders.dlq --allow orders --rate -1"},
		{`--to is "x", which is not in --allow`, "drain orders.dlq --allow orders --to x"},
		{`--format is "xml": use one of auto, `, "show 1 --format xml"},
	} {
		if got := s.pipe(strings.Fields(c.line)...); got.code != 2 || !strings.Contains(got.err, c.says) || got.out != "" {
			t.Errorf("%s: exit %d: %s%s; want 2 and %q", c.line, got.code, got.out, got.err, c.says)
		}
	}
	if n, err := s.store.Count(t.Context(), letters.Filter{}); err != nil || n != 5 {
		t.Errorf("%d letters wait, %v", n, err)
	}
}
