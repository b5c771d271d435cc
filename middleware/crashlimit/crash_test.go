package crashlimit

import (
	"bufio"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
)

// prepare makes the tables of a source with messages, and returns the order for its consumer.
func prepare(t *testing.T, d databases.Database, address string, ids ...string) (*sql.DB, order) {
	t.Helper()
	db := d.Open(t, address)
	for _, statement := range []string{
		`CREATE TABLE todo (id VARCHAR(64) PRIMARY KEY, done INTEGER NOT NULL)`,
		`CREATE TABLE effects (id VARCHAR(64) NOT NULL)`,
		`CREATE TABLE letters (id VARCHAR(64) NOT NULL, reason VARCHAR(64) NOT NULL)`,
	} {
		testkit.Must(db.Exec(statement))
	}
	for _, id := range ids {
		testkit.Must(db.Exec(`INSERT INTO todo (id, done) VALUES ('` + id + `', 0)`))
	}
	return db, order{Driver: child.Driver(d.Name), Address: address}
}

// The results of a run, as pairs takes them.
const (
	lettersByID = `SELECT id, reason FROM letters`
	effectsByID = `SELECT id, count(*) FROM effects GROUP BY id`
	marksByID   = `SELECT id, count(*) FROM spillway_deliveries GROUP BY id`
	processes   = `SELECT id, node FROM spillway_processes`
)

func pairs(db *sql.DB, query string) map[string]string {
	rows := testkit.Must(db.Query(query))
	defer func() { _ = rows.Close() }()
	found := map[string]string{}
	for rows.Next() {
		var key, value string
		if err := rows.Scan(&key, &value); err != nil {
			panic(err)
		}
		found[key] = value
	}
	return found
}

// consumer is one in a process of its own. One that lives for too long is killed: no test waits for ever.
type consumer struct {
	said       *bufio.Reader
	stop, kill func()
	wait       func() (exitCode int)
}

func (o order) start(t *testing.T) consumer {
	t.Helper()
	cmd := child.Command(t, o)
	stdin, stdout := testkit.Must(cmd.StdinPipe()), testkit.Must(cmd.StdoutPipe())
	testkit.NoError(t, cmd.Start())
	kill := func() { _ = cmd.Process.Kill() }
	late := time.AfterFunc(patience, kill)
	t.Cleanup(kill)
	return consumer{bufio.NewReader(stdout), func() { _ = stdin.Close() }, kill, func() int {
		t.Helper()
		_ = cmd.Wait()
		testkit.Require(t, late.Stop(), "a consumer did not end within %s", patience)
		return cmd.ProcessState.ExitCode()
	}}
}

// run runs a consumer until it ends.
func (o order) run(t *testing.T) (exitCode int) {
	t.Helper()
	return o.start(t).wait()
}

func (c consumer) wantLine(t *testing.T, want string) {
	t.Helper()
	for line := ""; line != want+"\n"; {
		var err error
		line, err = c.said.ReadString('\n')
		testkit.Require(t, err == nil, "%q was not said: %v", want, err)
	}
}

// Feature D10, promise P4: messages that end the process are set aside after a bounded number of restarts, and all
// others, eight of which are in flight each time, are applied and never set aside. With a receiver they are applied
// once.
func TestDeadlyMessages(t *testing.T) {
	for _, d := range databases.All {
		for _, deadly := range [][]string{{"20"}, {"03", "04"}} { // the one with a receiver, the two without
			if d.Name != "sqlite" && len(deadly) == 2 { // which differs in nothing that a database sees
				continue
			}
			t.Run(fmt.Sprint(d.Name, deadly), func(t *testing.T) {
				t.Parallel()
				var ids []string
				for i := range 50 {
					ids = append(ids, fmt.Sprintf("%02d", i))
				}
				db, o := prepare(t, d, d.Create(t), ids...)
				o.Receiver, o.Deadly, o.Exit = len(deadly) == 1, deadly, true
				most := len(deadly) * (3 + 1)
				for restarts := 0; ; restarts++ {
					code := o.run(t)
					if code == 0 {
						break
					}
					testkit.Require(t, code == deadlyExit && restarts < most, "end %d, of %d at most, is by exit code %d",
						restarts+1, most, code)
				}
				letters, effects := pairs(db, lettersByID), pairs(db, effectsByID)
				testkit.Equal(t, "letters", len(letters), len(deadly))
				for _, id := range ids {
					if n := effects[id]; slices.Contains(deadly, id) {
						testkit.Equal(t, id, letters[id], "max_delivery_count_exceeded")
						testkit.Equal(t, id+": applied", n, "")
					} else {
						testkit.Check(t, n == "1" || n != "" && !o.Receiver, "%s was applied %q times", id, n)
					}
				}
				left := pairs(db, marksByID)
				testkit.Check(t, len(left) <= len(deadly), "marks are left: %v", left)
			})
		}
	}
}

// Feature D10: what is left of a process after SIGKILL makes the next one mark; after an orderly end it does not.
func TestKilledAndStopped(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db, o := prepare(t, d, address)
		for _, kill := range []bool{false, true} {
			c := o.start(t)
			c.wantLine(t, "running")
			if kill {
				c.kill()
			}
			c.stop()
			code := c.wait()
			testkit.Require(t, kill == (code != 0), "killed: %v, exit code %d", kill, code)
			l := newLimit(t, options{store: storeOn(t, db), quietAfter: time.Second, Config: Config{Heartbeat: 50 * time.Millisecond}})
			testkit.NoError(t, l.start())
			testkit.Equal(t, "it marks", l.mode.Load() == marking, kill)
			eventually(t, "things are quiet in the end, and the lost one forgotten", func() bool {
				return l.mode.Load() == quiet && len(pairs(db, processes)) == 1
			})
			testkit.NoError(t, l.end())
			testkit.Equal(t, "processes left behind", len(pairs(db, processes)), 0)
		}
	})
}

// Feature D10, promise P3: ends in order are no deaths, while deliveries are marked, also under a handler that does not
// heed its context, and outlasts the router's CloseTimeout.
func TestStubbornHandler(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db, o := prepare(t, d, address, "a")
		o.Stubborn = true
		c := o.start(t)
		c.wantLine(t, "handling a")
		c.kill() // from here on deliveries are marked; this one was not
		c.wait()
		for range 4 {
			c := o.start(t)
			c.wantLine(t, "handling a")
			testkit.Equal(t, "marks", len(pairs(db, marksByID)), 1)
			c.stop()
			testkit.Equal(t, "exit code", c.wait(), 0)
		}
		o.Stubborn, o.Exit = false, true
		testkit.Equal(t, "exit code", o.run(t), 0)
		testkit.Equal(t, "letters", len(pairs(db, lettersByID)), 0)
		testkit.Equal(t, "effects", pairs(db, effectsByID)["a"], "1")
	})
}

// Features D10, V3: a letter of a deadly message that was fixed and redriven is handled, though the process that
// refused it was killed as soon as its letter had its place.
func TestRedrivenAfterKill(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db, o := prepare(t, d, address, "a")
		o.Deadly, o.Exit = []string{"a"}, true
		for range 4 {
			testkit.Equal(t, "exit code", o.run(t), deadlyExit)
		}
		o.Die = true
		testkit.Equal(t, "exit code", o.run(t), -1)
		testkit.Equal(t, "letter", pairs(db, lettersByID)["a"], "max_delivery_count_exceeded")
		testkit.Equal(t, "marks", len(pairs(db, marksByID)), 1)
		testkit.Must(db.Exec(`UPDATE todo SET done = 0`))
		o.Deadly, o.Die, o.Redrives = nil, false, "1"
		testkit.Equal(t, "exit code", o.run(t), 0)
		testkit.Equal(t, "effects", pairs(db, effectsByID)["a"], "1")
	})
}
