package main

import (
	"cmp"
	"database/sql"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/browser"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

var update = flag.Bool("update", false, "take the pictures of docs anew")

// The pictures in the documents are of this demo: a campaign redrives one cause while the others wait.
func TestPictures(t *testing.T) {
	if !*update {
		t.Skip("make pictures takes them")
	}
	s, db, url := serveDemo(t, 5*time.Millisecond)
	testkit.Eventually(t, "letters", func() bool {
		return testkit.Must(hidden.Of(s.campaigns).Store().Count(t.Context(), letters.Filter{})) >= 500
	})
	s.faults.Fixed.Store(true)
	spread(t, db)
	engine := browser.Start(t)
	p := engine.Page(t, browser.Options{Width: 1280, Height: 970})
	p.Open(url + "deadletters/")
	p.Follow("table a[href*='redrive?']")
	p.Type("input[name='reason']", "INC-7: events of organisations have an owner now")
	p.Follow("button[value='start']")
	p.Open(url + "deadletters/")
	testkit.Eventually(t, "a part is done", func() bool { // the page moves by itself
		return browser.Eval[bool](p, "(() => { const p = document.querySelector('progress'); return p?.value > p?.max / 6; })()")
	}, func() string { return p.Text("main") })
	keep := func(name string, page *browser.Page) {
		testkit.NoError(t, os.WriteFile(filepath.Join("../../docs", "console-"+name+".png"), page.Window(), 0o644))
	}
	keep("overview", p)
	phone := engine.Page(t, browser.Options{Width: 390, Height: 844, Dark: true})
	phone.Open(url + "deadletters/causes")
	keep("phone", phone)
	p.Open(url + "deadletters/causes")
	p.Follow("tr:nth-child(2) a[href*='cause=']") // which the campaign leaves alone
	p.Follow("tbody a[href*='letters/']")
	keep("letter", p)
}

// spread tells of the letters as if they had failed within the last hour: each cause since a time of its own, and more and
// more.
func spread(t *testing.T, db *sql.DB) {
	t.Helper()
	type letter struct {
		seq   int64
		cause string
	}
	var all []letter
	rows := testkit.Must(db.QueryContext(t.Context(), `SELECT seq, cause FROM spillway_dead_letters ORDER BY seq`))
	for rows.Next() {
		var l letter
		testkit.NoError(t, rows.Scan(&l.seq, &l.cause))
		all = append(all, l)
	}
	testkit.NoError(t, rows.Err())
	slices.SortStableFunc(all, func(a, b letter) int { return cmp.Compare(a.cause, b.cause) })
	conn := testkit.Must(db.Conn(t.Context())) // of one transaction, beside the service
	defer func() { _ = conn.Close() }()
	exec := func(statement string, args ...any) { testkit.Must(conn.ExecContext(t.Context(), statement, args...)) }
	exec(`PRAGMA busy_timeout = 30000`)
	exec(`BEGIN IMMEDIATE`)
	defer exec(`COMMIT`)
	now := time.Now()
	begun := []float64{43, 31, 54, 17}
	for of, i := 0, 0; i < len(all); of++ {
		cause, minutes := all[i].cause, [60]int{}
		n := 0
		for i+n < len(all) && all[i+n].cause == cause {
			n++
		}
		for k, l := range all[i : i+n] {
			ago := begun[of%len(begun)] * (1 - math.Sqrt((float64(k)+0.5)/float64(n))) // minutes
			at := now.Add(-time.Duration(ago * float64(time.Minute))).UnixMicro()
			exec(`UPDATE spillway_dead_letters SET first_failed_at = ?, last_failed_at = ? WHERE seq = ?`, at, at, l.seq)
			minutes[int(ago+float64(3*k%7)/4)]++
			if k == 0 {
				exec(`UPDATE spillway_letter_counts SET first_failed_at = ? WHERE cause = ?`, at, cause)
			}
		}
		last, recent := now.Unix()/60, strings.Builder{}
		for before := 1; before < 60; before++ {
			fmt.Fprintf(&recent, "%d:%d ", (last-int64(before))%1000, minutes[before])
		}
		exec(`UPDATE spillway_letter_counts SET minute = ?, in_minute = 0, recent = '' WHERE cause = ?`, last, cause)
		exec(`UPDATE spillway_letter_counts SET in_minute = ?, recent = ? WHERE cause = ? AND slot = (SELECT MIN(slot) FROM spillway_letter_counts WHERE cause = ?)`,
			minutes[0], recent.String(), cause, cause)
		i += n
	}
}
