package delivery

import (
	"bufio"
	"database/sql"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// prepare makes the tables of a source with n messages.
func prepare(t *testing.T, d database, db *sql.DB, ids []string) {
	t.Helper()
	for _, statement := range []string{
		`CREATE TABLE todo (id VARCHAR(64) PRIMARY KEY, done INTEGER NOT NULL)`, `CREATE TABLE effects (id VARCHAR(64) NOT NULL)`,
		`CREATE TABLE letters (id VARCHAR(64) NOT NULL, reason VARCHAR(64) NOT NULL)`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		if _, err := db.Exec(storeDialect(d).query(`INSERT INTO todo (id, done) VALUES (?, 0)`), id); err != nil {
			t.Fatal(err)
		}
	}
}

func pairs(t *testing.T, db *sql.DB, query string) map[string]string {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	found := map[string]string{}
	for rows.Next() {
		var key, value string
		if err := rows.Scan(&key, &value); err != nil {
			t.Fatal(err)
		}
		found[key] = value
	}
	return found
}

// Feature D10, promise P4: messages that end the process are set aside after a bounded number of restarts, and all others,
// eight of which are in flight each time, are applied and never set aside. With a receiver they are applied once.
func TestDeadlyMessages(t *testing.T) {
	for i, d := range databases {
		for name, o := range map[string]order{
			"one": {Receiver: true, Deadly: []string{"20"}}, "two, without a receiver": {Deadly: []string{"03", "04"}},
		} {
			t.Run(d.name+", "+name, func(t *testing.T) {
				t.Parallel()
				o := o
				o.Database, o.Address, o.Exit = i, d.create(t), true
				db := d.open(t, o.Address)
				var ids []string
				for i := range 50 {
					ids = append(ids, fmt.Sprintf("%02d", i))
				}
				prepare(t, d, db, ids)
				restarts, most := 0, len(o.Deadly)*(3+1)
				for {
					err := o.command().Run()
					if err == nil {
						break
					}
					if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != deadlyExit {
						t.Fatal(err)
					}
					if restarts++; restarts > most {
						t.Fatalf("restarted %d times, at most %d are needed", restarts, most)
					}
				}
				letters := pairs(t, db, `SELECT id, reason FROM letters`)
				if len(letters) != len(o.Deadly) || slices.ContainsFunc(o.Deadly, func(id string) bool { return letters[id] != "max_delivery_count_exceeded" }) {
					t.Errorf("set aside: %v", letters)
				}
				effects := pairs(t, db, `SELECT id, count(*) FROM effects GROUP BY id`)
				for _, id := range ids {
					want := "1"
					if slices.Contains(o.Deadly, id) {
						want = ""
					}
					if got := effects[id]; got != want && (o.Receiver || got == "" || want == "") {
						t.Errorf("%s was applied %q times", id, got)
					}
				}
				if left := pairs(t, db, `SELECT id, deliveries FROM spillway_deliveries`); len(left) > len(o.Deadly) {
					t.Errorf("marks are left: %v", left)
				}
				t.Logf("%d restarts", restarts)
			})
		}
	}
}

// Feature D10: what is left of a process after SIGKILL makes the next one mark; after an orderly end it does not.
func TestKilledAndStopped(t *testing.T) {
	onEach(t, func(t *testing.T, d database, address string) {
		db := d.open(t, address)
		prepare(t, d, db, nil)
		o := order{Database: slices.IndexFunc(databases, func(o database) bool { return o.name == d.name }), Address: address}
		for _, kill := range []bool{false, true} {
			cmd := o.command()
			stdin, err1 := cmd.StdinPipe()
			stdout, err2 := cmd.StdoutPipe()
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "running\n" {
				t.Fatal(line, err)
			}
			if kill {
				_ = cmd.Process.Kill()
			}
			_ = stdin.Close()
			if err := cmd.Wait(); kill != (err != nil) {
				t.Fatal(err)
			}
			l := newLimit(t, LimitConfig{Store: d.store(db), Beat: 50 * time.Millisecond, QuietAfter: time.Second})
			if err := l.start(); err != nil {
				t.Fatal(err)
			}
			if got := l.mode.Load() == marking; got != kill {
				t.Errorf("killed: %v, marking: %v", kill, got)
			}
			eventually(t, "things are quiet in the end, and the lost one forgotten", func() bool {
				return l.mode.Load() == quiet && len(pairs(t, db, `SELECT id, node FROM spillway_processes`)) == 1
			})
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if left := pairs(t, db, `SELECT id, node FROM spillway_processes`); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		}
	})
}
