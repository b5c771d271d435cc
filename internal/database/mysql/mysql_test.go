package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/database/mysql"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/database/schema"
	"github.com/watermill-spillway/spillway/internal/keytable"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var letters = schema.Table{
	Name: "letters",
	Create: []string{`CREATE TABLE IF NOT EXISTS letters (a VARBINARY(255), b VARBINARY(255), c BIGINT, d LONGBLOB,
	PRIMARY KEY (b, a), INDEX letters_c (c)) ENGINE=InnoDB`},
	Columns: []string{"a", "b", "c", "d"},
	Key:     []string{"b", "a"},
}

// Feature I1: a table is made once, by however many at once, and one of the same name that is another is refused.
func TestEnsure(t *testing.T) {
	dsn := mysqltest.Database(t)
	start := make(chan struct{})
	var makers sync.WaitGroup
	for range 10 {
		db := mysqltest.Open(t, dsn)
		if err := db.Ping(); err != nil { // so that all start together
			t.Fatal(err)
		}
		makers.Go(func() {
			<-start
			if err := mysql.Ensure(t.Context(), db, letters); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	makers.Wait()
	db := mysqltest.Open(t, dsn)
	for want, change := range map[string]func(*schema.Table){
		"without column": func(l *schema.Table) { l.Columns = append(l.Columns, "e") },
		"primary key":    func(l *schema.Table) { l.Key = []string{"a", "b"} },
		"create table":   func(l *schema.Table) { l.Name, l.Create = "others", []string{"CREATE nonsense"} },
	} {
		other := letters
		change(&other)
		if err := mysql.Ensure(t.Context(), db, other); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := mysql.Ensure(t.Context(), nil, letters); err == nil {
		t.Error("a nil db passes")
	}
	for settings, want := range map[string]string{
		"parseTime=true&interpolateParams=true&clientFoundRows=true&columnsWithAlias=true": "",
		"sql_mode=%27ANSI%27": "", "autocommit=0": "autocommit",
	} {
		err := mysql.Ensure(t.Context(), mysqltest.Open(t, mysqltest.With(dsn, settings)), letters)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", settings, err)
		}
	}
}

// Feature I1: a table is refused that knows no transactions, has no primary key, or changes what is put into it.
func TestEnsureRefuses(t *testing.T) {
	for definition, want := range map[string]string{
		`TABLE letters (a VARBINARY(255), b VARBINARY(255), c INT, d BLOB, PRIMARY KEY (b, a)) ENGINE=MyISAM`:       "MyISAM",
		`TABLE letters (a VARBINARY(255), b VARBINARY(255), c INT, d BLOB)`:                                         "primary key ()",
		`VIEW letters AS SELECT 1 AS a, 2 AS b, 3 AS c, 4 AS d`:                                                     "primary key ()",
		`TABLE letters (a VARCHAR(255), b VARBINARY(255), c INT, d BLOB, PRIMARY KEY (b, a))`:                       ": a;",
		`TABLE letters (a VARBINARY(255), b VARBINARY(255), c INT, d TEXT COLLATE utf8mb4_bin, PRIMARY KEY (b, a))`: ": d;",
		`TABLE letters (a BINARY(255), b VARBINARY(255), c INT, d BLOB, PRIMARY KEY (b, a))`:                        ": a;",
		`TABLE letters (a VARBINARY(255), b VARBINARY(255), c INT, d BLOB, PRIMARY KEY (b(20), a))`:                 ": b;",
		`TABLE letters (a VARBINARY(255), b VARBINARY(254), c INT, d BLOB, PRIMARY KEY (b, a))`:                     ": b;",
		`TABLE letters (a VARBINARY(300), b VARBINARY(255), c INT, d BLOB, e TEXT, UNIQUE (c), PRIMARY KEY (b, a))`: "",
	} {
		db := mysqltest.Open(t, mysqltest.Database(t))
		if _, err := db.Exec(`CREATE ` + definition); err != nil {
			t.Fatal(err)
		}
		if err := mysql.Ensure(t.Context(), db, letters); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", definition, err)
		}
	}
}

// Feature I1: where the table is there already the user needs no right to create tables.
func TestEnsureWithoutRights(t *testing.T) {
	dsn := mysqltest.Database(t)
	if err := mysql.Ensure(t.Context(), mysqltest.Open(t, dsn), letters); err != nil {
		t.Fatal(err)
	}
	db := mysqltest.Open(t, mysqltest.With(dsn, "tx_read_only=1")) // stands for a user without rights
	if err := mysql.Ensure(t.Context(), db, letters); err != nil {
		t.Error(err)
	}
	other := letters
	other.Name, other.Create = "others", []string{`CREATE TABLE IF NOT EXISTS others (a INT)`}
	if err := mysql.Ensure(t.Context(), db, other); mysql.Number(err) != 1792 {
		t.Error(err)
	}
}

// Feature I1: the table of keys is one that Ensure would accept, and takes the longest that keytable.Column makes.
func TestKeys(t *testing.T) {
	db := mysqltest.Open(t, mysqltest.Database(t))
	for range 2 {
		if err := mysql.Upgrade(t.Context(), db, keytable.MySQL); err != nil {
			t.Fatal(err)
		}
	}
	longest := keytable.Column(strings.Repeat("x", 255))
	if _, err := db.Exec(`INSERT INTO spillway_keys (consumer, id, outputs, applied_at) VALUES (?, ?, ?, ?)`, longest, longest, []byte{0xff}, time.Now().UnixMilli()); err != nil {
		t.Error(err)
	}
}

// Feature V9: whoever is the victim of a deadlock tries again, and other errors return at once.
func TestWrite(t *testing.T) {
	db := mysqltest.Open(t, mysqltest.Database(t))
	for _, statement := range []string{`CREATE TABLE pair (id INT PRIMARY KEY, n INT)`, `INSERT INTO pair VALUES (1, 0), (2, 0)`} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	var both sync.WaitGroup
	both.Add(2)
	var writers sync.WaitGroup
	runs := make(chan int, 20)
	for first := 1; first <= 2; first++ {
		writers.Go(func() {
			met := false
			err := mysql.Write(t.Context(), db, func(tx *sql.Tx) error {
				runs <- first
				for _, id := range []int{first, 3 - first} {
					if _, err := tx.Exec(`UPDATE pair SET n = n + 1 WHERE id = ?`, id); err != nil {
						return err
					}
					if !met { // both hold their first row now
						met = true
						both.Done()
						both.Wait()
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	var sum int
	if err := db.QueryRow(`SELECT SUM(n) FROM pair`).Scan(&sum); err != nil || sum != 4 || len(runs) < 3 {
		t.Errorf("the sum is %d after %d runs, %v", sum, len(runs), err)
	}
	boom, tries := errors.New("boom"), 0
	if err := mysql.Write(t.Context(), db, func(*sql.Tx) error { tries++; return boom }); err != boom || tries != 1 {
		t.Error(err, tries)
	}
}

// Feature V9: there is an end to trying again, and the context is one.
func TestWriteGivesUp(t *testing.T) {
	db := mysqltest.Open(t, mysqltest.Database(t))
	tries := 0
	victim := func(*sql.Tx) error { tries++; return fmt.Errorf("wrapped: %w", &driver.MySQLError{Number: 1213}) }
	if err := mysql.Write(t.Context(), db, victim); mysql.Number(err) != 1213 || tries != 10 {
		t.Error(err, tries)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := mysql.Write(ctx, db, func(*sql.Tx) error { <-ctx.Done(); return &driver.MySQLError{Number: 1205} })
	if !errors.Is(err, context.DeadlineExceeded) || mysql.Number(err) != 1205 {
		t.Error(err)
	}
}

// MySQLError is as a fork of the driver would have it.
type MySQLError struct{ Number int64 }

func (*MySQLError) Error() string { return "failed" }

// Feature V9: the number is found wherever the error is wrapped, and nowhere else.
func TestNumber(t *testing.T) {
	cause := &driver.MySQLError{Number: 1062}
	var none *driver.MySQLError
	for want, errs := range map[uint16][]error{
		1062: {cause, fmt.Errorf("a: %w", cause), errors.Join(errors.New("b"), fmt.Errorf("c: %w", cause)), fmt.Errorf("%w %w", none, cause)},
		0:    {nil, none, errors.New("1062"), sql.ErrTxDone, &MySQLError{1062}, driver.ErrInvalidConn},
	} {
		for _, err := range errs {
			if got := mysql.Number(err); got != want {
				t.Errorf("%T: %d, want %d", err, got, want)
			}
		}
	}
}
