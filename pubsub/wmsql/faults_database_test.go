package wmsql_test

import (
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// A database that is read-only for a while loses nothing and sets nothing aside; when it is writable again, it goes on.
func TestReadOnly(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench, s server) {
		own, readOnly := b.ownSessions(s)
		var ids []string
		for _, prefix := range []string{"a", "b", "c"} {
			for i := range 10 {
				ids = append(ids, prefix+strconv.Itoa(i))
			}
		}
		own.run(own.subscriber(func(c *wmsql.SubscriberConfig) { c.MaxDeliveries = 1 }), own.whole, once)
		b.publish(ids[:10]...)
		b.drained()
		readOnly(true)
		b.until("what began before has ended", func() bool { return own.db.Stats().InUse == 0 })
		time.Sleep(50 * time.Millisecond) // and its connection is too old to be used again
		b.publish(ids[10:20]...)
		time.Sleep(300 * time.Millisecond)
		if got := len(b.effects()); got != 10 || b.backlog(b.topic, "") != 10 {
			t.Errorf("%d messages took effect, %d are left", got, b.backlog(b.topic, ""))
		}
		readOnly(false)
		b.publish(ids[20:]...)
		b.account(ids)
	})
}

// ownSessions is the bench for handlers with a pool of its own, and makes the database read-only for the sessions there.
func (b *bench) ownSessions(s server) (*bench, func(bool)) {
	b.Helper()
	user := ""
	var readOnly func(bool)
	if b.isPostgres() {
		user = "plain_" + strings.ToLower(rand.Text()[:8])
		b.exec(`CREATE ROLE ` + user + ` SUPERUSER LOGIN PASSWORD '` + user + `'`)
		b.Cleanup(func() {
			b.exec(`REASSIGN OWNED BY ` + user + ` TO CURRENT_USER`)
			b.exec(`DROP ROLE ` + user)
		})
		readOnly = func(on bool) {
			b.exec(`ALTER ROLE ` + user + ` SET default_transaction_read_only = ` + strconv.FormatBool(on))
			b.exec(`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '` + user + `'`)
		}
	} else { // read_only is not for users who may do everything
		b.Cleanup(func() { b.exec(`SET GLOBAL tx_read_only = 0`) })
		readOnly = func(on bool) { b.exec(`SET GLOBAL tx_read_only = ` + strconv.FormatBool(on)) }
	}
	own := *b
	own.db = openAt(b, s.name, s.to("", user))
	own.db.SetConnMaxLifetime(time.Millisecond) // what a session was told at its start holds for all of it
	own.pub = own.publisher()
	return &own, readOnly
}

// A full disk is like any failure of a statement. As no letter can be written either, the message comes again until there
// is room.
func TestFullDisk(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench, s server) {
		mend := b.fullDisk(s)
		ids := []string{"a", "b", "c"}
		b.publish(ids...)
		var failed deliveries
		b.run(b.subscriber(oneBatch), func(msg *message.Message) ([]*message.Message, error) {
			if _, err := txOf(msg.Context()).Exec(`INSERT INTO bulky VALUES ('` + rand.Text() + strings.Repeat(rand.Text(), 20000) + `')`); err != nil {
				if failed.add(msg.UUID) == 1 {
					t.Log(err)
				}
				return nil, errors.Join(err, b.write(msg, "half"))
			}
			return b.whole(msg)
		}, once, func(c *spillway.Config) {
			c.Publisher = refusing{c.Publisher, func(string) bool { return true }} // as it would be on the same disk
		})
		b.until("it fails, and comes again", func() bool { return failed.get()["a"] > 3 })
		if effects := b.effects(); len(effects) > 0 {
			t.Errorf("effects %v", effects)
		}
		mend()
		b.account(ids)
	})
}

// fullDisk makes a table for which there is no room until mend is called. MariaDB 10.11 crashes when the disk of a table is
// full; there a trigger says what the server would say of a full tablespace.
func (b *bench) fullDisk(s server) (mend func()) {
	b.Helper()
	if !b.isPostgres() {
		b.exec(`CREATE TABLE bulky (data LONGTEXT)`)
		b.exec(`CREATE TRIGGER no_room BEFORE INSERT ON bulky FOR EACH ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'`)
		return func() { b.exec(`DROP TRIGGER no_room`) }
	}
	folder := b.TempDir()
	for above := folder; above != os.TempDir() && above != "/"; above = filepath.Dir(above) {
		_ = os.Chmod(above, 0o755) // for the server's user
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=16m,mode=0700,uid=postgres", "spillway", folder).CombinedOutput(); err != nil {
		b.Skipf("NOT TESTED: no disk can be mounted for the server: %v: %s", err, out)
	}
	name, fill := "small_"+strings.ToLower(rand.Text()[:8]), filepath.Join(folder, "fill")
	b.Cleanup(func() {
		b.exec(`DROP TABLE bulky`)
		b.exec(`DROP TABLESPACE ` + name)
		if out, err := exec.Command("umount", "-l", folder).CombinedOutput(); err != nil {
			b.Errorf("%v: %s", err, out)
		}
	})
	b.exec(`CREATE TABLESPACE ` + name + ` LOCATION '` + folder + `'`)
	b.exec(`CREATE TABLE bulky (data TEXT) TABLESPACE ` + name)
	if err := os.WriteFile(fill, make([]byte, 64<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		b.Fatalf("the disk is not full: %v", err)
	}
	return func() {
		if err := os.Remove(fill); err != nil {
			b.Fatal(err)
		}
	}
}
