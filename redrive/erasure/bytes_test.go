package erasure_test

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/erasure"
)

// Feature D14: after the step that docs/privacy.md names, the bytes of a person are not in the file of SQLite either,
// nor in those beside it. Without the step they still are.
func TestErase_bytesOfSQLite(t *testing.T) {
	folder := t.TempDir()
	db := testkit.Must(sql.Open("sqlite", "file:"+filepath.Join(folder, "test.db")+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(2000)"))
	defer db.Close()
	s := open(t, db)
	const n = 40
	fill(t, db, s, n)
	inFiles := func() (times int) {
		files, err := filepath.Glob(filepath.Join(folder, "*"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			text := testkit.Must(os.ReadFile(file))
			times += bytes.Count(text, []byte(person))
		}
		return times
	}
	testkit.Must(erasure.Erase(t.Context(), s, erasure.Request{Metadata: whom, Act: act}))
	if left := saying(t, db, person); len(left) > 0 {
		t.Fatal(left)
	}
	if inFiles() == 0 {
		t.Error("the bytes went without the step: the test shows nothing")
	}
	conn := testkit.Must(db.Conn(context.Background()))
	defer conn.Close()
	for _, statement := range []string{`VACUUM`, `PRAGMA wal_checkpoint(TRUNCATE)`} {
		testkit.Must(conn.ExecContext(t.Context(), statement))
	}
	if times := inFiles(); times > 0 {
		t.Errorf("the files have the value %d times", times)
	}
	wantOthers(t, db, s, n)
}
