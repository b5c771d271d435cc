package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features V9 and V10: purge deletes what is done with, never what waits unless asked, and the record stays.
func TestPurge(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := shopOn(t, d, address, incident()...)
		s.pipe("discard", "--handler", "billing", "--reason", "test tenant", "--yes")
		for _, step := range []struct {
			code int
			says string
			args []string
		}{
			{2, "--status", []string{"purge", "--older-than", "0s", "--reason", "retention"}},
			{2, "--older-than", []string{"purge", "--status", "discarded", "--reason", "retention"}},
			{2, "--reason", []string{"purge", "--status", "discarded", "--older-than", "0s"}},
			{4, "delete 3 letters of shop for good?", []string{"purge", "--status", "discarded", "--older-than", "0s", "--reason", "retention"}},
			{3, "no letter", []string{"purge", "--status", "discarded", "--older-than", "99999d", "--reason", "retention", "--yes"}},
			{0, "deleted 3 letters", []string{"purge", "--status", "discarded", "--older-than", "0s", "--reason", "retention", "--yes"}},
		} {
			if got := s.pipe(step.args...); got.code != step.code || !strings.Contains(got.out+got.err, step.says) {
				t.Errorf("%v: exit %d, want %d: %s %s", step.args, got.code, step.code, got.out, got.err)
			}
		}
		if n := strings.Count(s.pipe("list", "--status", "all").out, "\n"); n != 2 {
			t.Errorf("%d letters are left", n)
		}
		if got := s.pipe("audit", "--id", "id-0"); !strings.Contains(got.out, "discarded") || !strings.Contains(got.out, "purged") {
			t.Errorf("the record of a purged letter: %s %s", got.out, got.err)
		}
	})
}

// Features V9 and V10: a lease whose holder is gone is seen, and broken on record.
func TestUnlease(t *testing.T) {
	s := newShop(t, incident()...)
	seq := fmt.Sprint(claim(t, s.store, letters.Filter{Handlers: []string{"shipping"}}).Letters[0].Seq)
	if got := s.pipe("list", "--leased"); !strings.HasPrefix(got.out, seq+"\t") || !strings.Contains(got.out, "leased by") {
		t.Errorf("%s %s", got.out, got.err)
	}
	if got := s.pipe("unlease", seq, "--reason", "scrapped", "--yes"); got.code != 0 {
		t.Errorf("exit %d: %s", got.code, got.err)
	}
	if got := s.pipe("unlease", seq, "--reason", "scrapped", "--yes"); got.code != 3 {
		t.Errorf("without a lease: exit %d: %s", got.code, got.err)
	}
	if got := s.pipe("audit", seq); !strings.Contains(got.out, "lease_broken\t"+seq) || !strings.Contains(got.out, "scrapped") {
		t.Errorf("the record: %s", got.out)
	}
}

// claim leases the first letter that f chooses for an hour.
func claim(t *testing.T, store *letters.Store, f letters.Filter) inside.Claim[letters.Letter] {
	t.Helper()
	seqs, err := store.Inside().Free(t.Context(), f, 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := store.Inside().Claim(t.Context(), f, seqs, time.Hour)
	if err != nil || len(c.Letters) != 1 {
		t.Fatal(c, err)
	}
	return c
}
