package crashlimit

import (
	"bufio"
	"database/sql"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

// prepare makes the tables of a source with a message a, and returns the order for its consumer.
func prepare(t *testing.T, d databases.Database, address string) (*sql.DB, order) {
	t.Helper()
	db := d.Open(t, address)
	for _, statement := range []string{
		`CREATE TABLE todo (id VARCHAR(64) PRIMARY KEY, done INTEGER NOT NULL)`,
		`INSERT INTO todo (id, done) VALUES ('a', 0)`,
		`CREATE TABLE effects (id VARCHAR(64) NOT NULL)`,
		`CREATE TABLE letters (id VARCHAR(64) NOT NULL, reason VARCHAR(64) NOT NULL)`,
	} {
		testkit.Must(db.Exec(statement))
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

// Feature D10, promise P3: ends in order are no deaths, while deliveries are marked, also under a handler that does not
// heed its context, and outlasts the router's CloseTimeout.
func TestStubbornHandler(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db, o := prepare(t, d, address)
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

// Features D10, V3, promise P4: a message that ends the process is set aside after a bounded number of restarts. When
// it is fixed and redriven it is handled, though the process that refused it was killed as soon as its letter had its
// place.
func TestRedrivenAfterKill(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db, o := prepare(t, d, address)
		o.Deadly, o.Exit = true, true
		for range 4 {
			testkit.Equal(t, "exit code", o.run(t), deadlyExit)
		}
		o.Die = true
		testkit.Equal(t, "exit code", o.run(t), -1)
		testkit.Equal(t, "letter", pairs(db, lettersByID)["a"], "max_delivery_count_exceeded")
		testkit.Equal(t, "marks", len(pairs(db, marksByID)), 1)
		testkit.Must(db.Exec(`UPDATE todo SET done = 0`))
		o.Deadly, o.Die, o.Redrives = false, false, "1"
		testkit.Equal(t, "exit code", o.run(t), 0)
		testkit.Equal(t, "effects", pairs(db, effectsByID)["a"], "1")
	})
}

// Feature D10, promise P1: a message that was refused has one letter, however often processes are killed before the
// broker takes its ack: as on Kafka, while an earlier message of its partition is in flight. It is dead-lettered again
// if it comes with another content.
func TestOneLetterWhileTheOffsetIsOpen(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db, o := prepare(t, d, address)
		testkit.Must(db.Exec(`INSERT INTO todo (id, done) VALUES ('b', 0)`))
		o.Deadly, o.Open = true, true
		for range 4 {
			testkit.Equal(t, "exit code", o.run(t), deadlyExit)
		}
		letters := func() (n int) {
			testkit.NoError(t, db.QueryRow(`SELECT count(*) FROM letters WHERE id = 'a'`).Scan(&n))
			return n
		}
		for range 2 {
			c := o.start(t)
			c.wantLine(t, "handling b") // so the one before it is acked
			testkit.Equal(t, "letters", letters(), 1)
			c.kill()
			c.wait()
		}
		o.Payload = "changed"
		c := o.start(t)
		c.wantLine(t, "handling b")
		testkit.Equal(t, "letters with the changed one", letters(), 2)
		c.stop()
		testkit.Equal(t, "exit code", c.wait(), 0)
	})
}
