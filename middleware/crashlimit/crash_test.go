package crashlimit

import (
	"bufio"
	"database/sql"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
)

// prepare makes the tables of a source with n messages.
func prepare(t *testing.T, db *sql.DB, ids ...string) {
	t.Helper()
	for _, statement := range []string{
		`CREATE TABLE todo (id VARCHAR(64) PRIMARY KEY, done INTEGER NOT NULL)`, `CREATE TABLE effects (id VARCHAR(64) NOT NULL)`,
		`CREATE TABLE letters (id VARCHAR(64) NOT NULL, reason VARCHAR(64) NOT NULL)`,
	} {
		testkit.Must(db.Exec(statement))
	}
	for _, id := range ids {
		testkit.Must(db.Exec(`INSERT INTO todo (id, done) VALUES ('` + id + `', 0)`))
	}
}

func pairs(t *testing.T, db *sql.DB, query string) map[string]string {
	t.Helper()
	rows := testkit.Must(db.Query(query))
	defer func() { _ = rows.Close() }()
	found := map[string]string{}
	for rows.Next() {
		var key, value string
		testkit.NoError(t, rows.Scan(&key, &value))
		found[key] = value
	}
	return found
}

// Feature D10, promise P4: messages that end the process are set aside after a bounded number of restarts, and all
// others, eight of which are in flight each time, are applied and never set aside. With a receiver they are applied
// once.
func TestDeadlyMessages(t *testing.T) {
	for _, d := range databases.All {
		for name, o := range map[string]order{
			"one": {Receiver: true, Deadly: []string{"20"}}, "two, without a receiver": {Deadly: []string{"03", "04"}},
			"by its publisher": {Receiver: true, Deadly: []string{"20"}, Outputs: true},
		} {
			if d.Name != "sqlite" && name != "one" { // these differ in nothing that a database sees
				continue
			}
			t.Run(d.Name+", "+name, func(t *testing.T) {
				t.Parallel()
				o := o
				o.Driver, o.Address, o.Exit = drivers[d.Name], d.Create(t), true
				db := d.Open(t, o.Address)
				var ids []string
				for i := range 50 {
					ids = append(ids, fmt.Sprintf("%02d", i))
				}
				prepare(t, db, ids...)
				restarts, most := 0, len(o.Deadly)*(3+1)
				for {
					err := child.Command(t, o).Run()
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
					if o.Outputs && want == "" { // its handler succeeded
						continue
					}
					if got := effects[id]; got != want && (o.Receiver || got == "" || want == "") {
						t.Errorf("%s was applied %q times", id, got)
					}
				}
				if left := pairs(t, db, `SELECT id, count(*) FROM spillway_deliveries GROUP BY id`); len(left) > len(o.Deadly) && !o.Outputs { // a mark goes after the ack then
					t.Errorf("marks are left: %v", left)
				}
				t.Logf("%d restarts", restarts)
			})
		}
	}
}

// Feature D10: what is left of a process after SIGKILL makes the next one mark; after an orderly end it does not.
func TestKilledAndStopped(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		prepare(t, db)
		o := order{Driver: drivers[d.Name], Address: address}
		for _, kill := range []bool{false, true} {
			cmd := child.Command(t, o)
			stdin, err1 := cmd.StdinPipe()
			stdout, err2 := cmd.StdoutPipe()
			testkit.Require(t, err1 == nil && err2 == nil, "%v %v", err1, err2)
			testkit.NoError(t, cmd.Start())
			line, err := bufio.NewReader(stdout).ReadString('\n')
			testkit.Require(t, line == "running\n", "%v %v", line, err)
			if kill {
				_ = cmd.Process.Kill()
			}
			_ = stdin.Close()
			err = cmd.Wait()
			testkit.Require(t, kill == (err != nil), "%v", err)
			l := newLimit(t, options{store: storeOn(t, db), quietAfter: time.Second, Config: Config{Heartbeat: 50 * time.Millisecond}})
			testkit.NoError(t, l.start())
			got := l.mode.Load() == marking
			testkit.Check(t, got == kill, "killed: %v, marking: %v", kill, got)
			eventually(t, "things are quiet in the end, and the lost one forgotten", func() bool {
				return l.mode.Load() == quiet && len(pairs(t, db, `SELECT id, node FROM spillway_processes`)) == 1
			})
			testkit.NoError(t, l.end())
			left := pairs(t, db, `SELECT id, node FROM spillway_processes`)
			testkit.Check(t, len(left) == 0, "left behind: %v", left)
		}
	})
}

// start starts a consumer and returns what it says, line by line.
func (o order) start(t *testing.T) (cmd *exec.Cmd, said *bufio.Reader) {
	t.Helper()
	cmd = child.Command(t, o)
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	testkit.NoError(t, err)
	deadline := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }) // the test does not wait for ever for what it says
	t.Cleanup(func() {
		deadline.Stop()
		_ = cmd.Process.Kill()
	})
	return cmd, bufio.NewReader(stdout)
}

func wantLine(t *testing.T, said *bufio.Reader, want string) {
	t.Helper()
	for {
		line, err := said.ReadString('\n')
		testkit.Require(t, err == nil, "%q was not said: %v", want, err)
		if line == want+"\n" {
			return
		}
	}
}

// Feature D10, promise P3: ends in order are no deaths, while deliveries are marked: SIGTERM, and a handler that does
// not heed its context, and outlasts the router's CloseTimeout.
func TestStubbornHandler(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		prepare(t, db, "a")
		o := order{Driver: drivers[d.Name], Address: address, Signal: true, Stubborn: true}
		cmd, said := o.start(t)
		wantLine(t, said, "handling a")
		_ = cmd.Process.Kill() // from here on deliveries are marked; this one was not
		_ = cmd.Wait()
		for i := range 4 {
			cmd, said := o.start(t)
			wantLine(t, said, "handling a")
			marks := pairs(t, db, `SELECT id, consumer FROM spillway_deliveries`)
			testkit.Check(t, len(marks) == 1, "the marks are %v", marks)
			testkit.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			err := cmd.Wait()
			testkit.Require(t, err == nil, "end %d: %v", i, err)
		}
		o.Signal, o.Stubborn, o.Exit = false, false, true
		testkit.NoError(t, child.Command(t, o).Run())
		if letters, effects := pairs(t, db, `SELECT id, reason FROM letters`), pairs(t, db, `SELECT id, count(*) FROM effects GROUP BY id`); len(letters) != 0 || effects["a"] != "1" {
			t.Errorf("letters %v, effects %v", letters, effects)
		}
	})
}

// Features D10, V3: a letter of a deadly message that was fixed and redriven is handled, though the process that
// refused it was killed as soon as its letter had its place.
func TestRedrivenAfterKill(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		prepare(t, db, "a")
		o := order{Driver: drivers[d.Name], Address: address, Deadly: []string{"a"}, Exit: true}
		for range 4 {
			if exit, ok := child.Command(t, o).Run().(*exec.ExitError); !ok || exit.ExitCode() != deadlyExit {
				t.Fatal(exit)
			}
		}
		o.Die = true
		if exit, ok := child.Command(t, o).Run().(*exec.ExitError); !ok || exit.Success() {
			t.Fatal(exit)
		}
		letters := pairs(t, db, `SELECT id, reason FROM letters`)
		testkit.Require(t, letters["a"] == "max_delivery_count_exceeded", "letters %v", letters)
		marks := pairs(t, db, `SELECT id, consumer FROM spillway_deliveries`)
		testkit.Check(t, len(marks) == 1, "the marks are %v", marks)
		testkit.Must(db.Exec(`UPDATE todo SET done = 0`))
		o.Deadly, o.Die, o.Redrives = nil, false, "1"
		testkit.NoError(t, child.Command(t, o).Run())
		effects := pairs(t, db, `SELECT id, count(*) FROM effects GROUP BY id`)
		testkit.Check(t, effects["a"] == "1", "effects %v", effects)
	})
}
