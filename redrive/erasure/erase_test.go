package erasure_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/erasure"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature D14: no table says anything of a person who was erased, others stay, and the record has no value.
func TestErase(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		db := d.Create(t)()
		s, ctx := open(t, db), t.Context()
		const n = 230
		fill(t, db, s, n)
		why := campaigns.Act{By: "eve", Reason: person + " complains"}
		ended, err := s.Campaigns.Start(ctx, campaigns.Request{Filter: letters.Filter{Metadata: whom, IDs: []string{"ann-1", "ann-2"}}, Act: why,
			Edit: &campaigns.Edit{Set: map[string]string{"to": person}, Merge: []byte(`{"big":12345678901234567890,"to":["` + person + `"]}`)}})
		testkit.NoError(t, err)
		testkit.Must(s.Campaigns.Cancel(ctx, ended.ID, why))
		testkit.Must(db.Exec(`UPDATE spillway_campaign_letters SET why = 'edit: no ` + person + `'`))
		taken, err := fixture.Take(ctx, s.Letters, letters.Filter{IDs: []string{"ann-7"}}, time.Hour, 1)
		testkit.Require(t, err == nil && len(taken) == 1, "%v %v", taken, err)
		request := erasure.Request{Metadata: whom, Act: act, DryRun: true}
		before := saying(t, db, person)
		dry, err := erasure.Erase(ctx, s, request)
		testkit.Check(t, err == nil && dry.Letters == n-1 && dry.LettersInHand == 1 && dry.Delayed == 20 &&
			dry.Keys == n && dry.Texts >= 3, "a dry run says %+v, %v", dry, err)
		after := saying(t, db, person)
		testkit.Check(t, len(after) == len(before) && len(before) >= 4*n, "%d places, after it %d", len(before), len(after))
		request.DryRun = false
		steps := 0
		request.Progress = func(erasure.Report) { steps++ }
		report, err := erasure.Erase(ctx, s, request)
		testkit.Check(t, errors.Is(err, erasure.ErrInHand) && report.Letters == n-1 && report.LettersInHand == 1 &&
			report.Delayed == 20 && report.Keys == n && steps >= 5,
			"%+v after %d steps, %v", report, steps, err)
		testkit.Check(t, report.Texts >= dry.Texts, "%d texts, and the dry run said %d", report.Texts, dry.Texts)
		testkit.NoError(t, fixture.Release(ctx, s.Letters, taken...))
		report, err = erasure.Erase(ctx, s, request)
		testkit.Check(t, err == nil && report.Letters == 1 && report.LettersInHand == 0 && report.Delayed == 0,
			"after the lease: %+v, %v", report, err)
		wantGone(t, db, person)
		wantOthers(t, db, s, n)
		events, err := s.Letters.Audit(ctx, letters.EventFilter{Kinds: []letters.EventKind{letters.EventErasure}})
		testkit.Check(t, err == nil && len(events) == 4 && events[0].By == "bob" && events[0].Reason == "request 17" &&
			strings.HasSuffix(events[0].Detail, report.Selector+"; began") &&
			strings.Contains(events[1].Detail, fmt.Sprintf("erased %d letters, 20 delayed messages, %d keys", n-1, n)),
			"on record are %+v, %v", events, err)
		c, err := s.Campaigns.Get(ctx, ended.ID)
		testkit.Check(t, err == nil && c.Request.Reason == "erased complains" && c.Request.Edit.Set["to"] == "erased" &&
			c.Selected == 2 && strings.Contains(string(c.Request.Edit.Merge), "12345678901234567890") &&
			slices.Equal(c.Request.Filter.IDs, []string{"ann-1", "ann-2"}), "%+v, %v", c, err)
	})
}

// Feature D14: by ids, with ids that name the person: neither the letters nor the record nor the keys have them.
func TestErase_forgetsIDs(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		db := d.Create(t)()
		s, ctx := open(t, db), t.Context()
		fill(t, db, s, 3)
		fixture.Publish(t, s.Letters, "orders.dlq", personal(person))
		testkit.Returns(t, 1)(s.Letters.MarkAll(ctx, letters.Filter{IDs: []string{person}}, letters.StatusDiscarded, letters.Act{By: "eve", Reason: "so says " + person}))
		ids := []string{person, "ann-0", "ann-1", "ann-2"}
		for i := range 20 {
			ids = append(ids, fmt.Sprint("waits-ann-", i))
		}
		report, err := erasure.Erase(ctx, s, erasure.Request{IDs: ids, ForgetIDs: true, Act: act})
		testkit.Check(t, err == nil && report.Letters == 4 && report.Delayed == 20 && report.Keys == 3,
			"%+v, %v", report, err)
		wantGone(t, db, person, "ann-0", "ann-1")
		wantOthers(t, db, s, 3)
		again, err := erasure.Erase(ctx, s, erasure.Request{IDs: ids, ForgetIDs: true, Act: act})
		testkit.Check(t, err == nil && again.Letters+again.Delayed+again.Keys == 0,
			"once more: %+v, %v", again, err)
	})
}

// Feature D14: what metadata cannot find, in keys and sealed letters, is counted in the report, and goes by ids.
func TestErase_unsearched(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		db := d.Create(t)()
		s, ctx := open(t, db), t.Context()
		const n = 3
		fill(t, db, s, n)
		testkit.Must(db.Exec(`INSERT INTO spillway_keys (consumer, id, outputs, applied_at) VALUES ('shop/mail', 'ann-succeeded', 'for ` + person + `', 1), ('shop/mail', 'plain', NULL, 1), ('shopping/mail', 'foreign', 'x', 1)`))
		sealer, _ := fixture.Sealer(t, "k1")
		sealed := testkit.Must(letters.NewStore(ctx, db, letters.Config{Service: "shop", Seal: sealer}))
		fixture.Publish(t, sealed, "orders.dlq", personal("ann-sealed"))
		for _, dry := range []bool{true, false} {
			report, err := erasure.Erase(ctx, s, erasure.Request{Metadata: whom, Act: act, DryRun: dry})
			testkit.Check(t, err == nil && report.Letters == n && report.KeysUnsearched == n+1 &&
				report.SealedUnsearched == 1, "a dry run %t: %+v, %v", dry, report, err)
		}
		report, err := erasure.Erase(ctx, s, erasure.Request{IDs: []string{"ann-succeeded", "ann-sealed"}, Act: act})
		testkit.Check(t, err == nil && report.Letters == 1 && report.Keys == 1 && report.KeysUnsearched == 0 &&
			report.SealedUnsearched == 0, "by ids: %+v, %v", report, err)
		report, err = erasure.Erase(ctx, s, erasure.Request{Metadata: whom, Act: act})
		testkit.Check(t, err == nil && report.KeysUnsearched == n && report.SealedUnsearched == 0,
			"afterwards: %+v, %v", report, err)
		wantGone(t, db, person)
	})
}

// Feature D14: a campaign that would publish the value goes on, and is named. When it has ended, the value goes.
func TestErase_openCampaign(t *testing.T) {
	db := fixture.SQLite.Create(t)()
	s, ctx := open(t, db), t.Context()
	fixture.Publish(t, s.Letters, "orders.dlq", fixture.Several(2)...)
	c := testkit.Must(s.Campaigns.Start(ctx, campaigns.Request{Act: campaigns.Act{By: "eve", Reason: "r"}, Edit: &campaigns.Edit{Set: map[string]string{"to": person}}}))
	request := erasure.Request{Metadata: whom, Act: act}
	report, err := erasure.Erase(ctx, s, request)
	testkit.Check(t, errors.Is(err, erasure.ErrInHand) && slices.Equal(report.CampaignsOpen, []string{c.ID}),
		"%+v, %v", report, err)
	testkit.Must(s.Campaigns.Cancel(ctx, c.ID, campaigns.Act{By: "eve", Reason: "r"}))
	testkit.Equal(t, "texts", testkit.Must(erasure.Erase(ctx, s, request)).Texts, 1)
	wantGone(t, db, person)
}

// Feature D14: a request that cannot be meant is refused, and so is a reason that would keep the value on record.
func TestErase_refuses(t *testing.T) {
	s := open(t, fixture.SQLite.Create(t)())
	for want, r := range map[string]erasure.Request{
		"are empty":              {Act: act},
		"both set":               {Act: act, IDs: []string{"1"}, Metadata: whom},
		"501 ids":                {Act: act, IDs: make([]string, 501)},
		"empty id":               {Act: act, IDs: []string{""}},
		"empty key or value":     {Act: act, Metadata: map[string]string{"customer": ""}},
		"Act.By":                 {IDs: []string{"1"}, Act: campaigns.Act{Reason: "r"}},
		"Act.Reason is empty":    {IDs: []string{"1"}, Act: campaigns.Act{By: "b"}},
		"Act.Reason has a value": {Metadata: whom, Act: campaigns.Act{By: "b", Reason: "for " + person}},
	} {
		testkit.Says(t, testkit.Err(erasure.Erase(t.Context(), s, r)), want)
	}
	dry := erasure.Request{Metadata: whom, Act: campaigns.Act{By: "bob", Reason: "for " + person}, DryRun: true}
	testkit.Says(t, testkit.Err(erasure.Erase(t.Context(), s, dry)), "Act.Reason") // what the run refuses
	dry.Act = campaigns.Act{}
	testkit.NoError(t, testkit.Err(erasure.Erase(t.Context(), s, dry))) // it needs no reason
	testkit.Check(t, testkit.Err(erasure.Erase(t.Context(), erasure.Stores{}, erasure.Request{IDs: []string{"1"}, Act: act})) != nil,
		"no store")
	s.Keys, s.Delayed, s.Campaigns = nil, nil, nil
	report, err := erasure.Erase(t.Context(), s, erasure.Request{IDs: []string{"1"}, Act: act})
	testkit.Check(t, err == nil && len(report.CampaignsOpen)+report.KeysInHand+report.Letters == 0,
		"with letters alone: %+v, %v", report, err)
}

// Feature D14: after the step that docs/privacy.md names, the bytes are in no file of SQLite, and before it they are.
func TestErase_bytesOfSQLite(t *testing.T) {
	folder := t.TempDir()
	db := testkit.Must(sql.Open("sqlite", "file:"+filepath.Join(folder, "test.db")+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(2000)"))
	defer db.Close()
	s := open(t, db)
	const n = 40
	fill(t, db, s, n)
	inFiles := func() (times int) {
		files, err := filepath.Glob(filepath.Join(folder, "*"))
		testkit.Require(t, err == nil && len(files) != 0, "%v %v", files, err)
		for _, file := range files {
			text := testkit.Must(os.ReadFile(file))
			times += bytes.Count(text, []byte(person))
		}
		return times
	}
	testkit.Must(erasure.Erase(t.Context(), s, erasure.Request{Metadata: whom, Act: act}))
	wantGone(t, db, person)
	testkit.Check(t, inFiles() != 0, "the bytes went without the step: the test shows nothing")
	conn := testkit.Must(db.Conn(context.Background()))
	defer conn.Close()
	for _, statement := range []string{`VACUUM`, `PRAGMA wal_checkpoint(TRUNCATE)`} {
		testkit.Must(conn.ExecContext(t.Context(), statement))
	}
	times := inFiles()
	testkit.Check(t, times <= 0, "the files have the value %d times", times)
	wantOthers(t, db, s, n)
}
