package wmsql_test

import (
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
)

// Promises P1, P2: a full disk is like any failure of a statement. As no letter can be written either, the message is
// redelivered until there is room.
func TestFullDisk(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench, _ server) {
		makeRoom := b.fullDisk()
		ids := []string{"a", "b", "c"}
		b.publish(ids...)
		var failed deliveries
		b.run(b.subscriber(oneBatch), func(msg *message.Message) ([]*message.Message, error) {
			bulk := rand.Text() + strings.Repeat(rand.Text(), 20000)
			if _, err := txOf(msg.Context()).Exec(`INSERT INTO bulky VALUES ('` + bulk + `')`); err != nil {
				failed.add(msg.UUID)
				return nil, errors.Join(err, b.write(msg, "half"))
			}
			return b.whole(msg)
		}, once, func(c *spillway.Config) {
			c.Publisher = refusing{c.Publisher, func(string) bool { return true }} // as it would be on the same disk
		})
		b.until("it fails, and is redelivered", func() bool { return failed.get()["a"] > 3 })
		if effects := b.effects(); len(effects) > 0 {
			t.Errorf("effects %v", effects)
		}
		makeRoom()
		b.account(ids)
	})
}

// fullDisk makes a table for which there is no room until makeRoom is called. MariaDB 10.11 crashes when the disk of a
// table is full; there a trigger returns the server's error of a full tablespace.
func (b *bench) fullDisk() (makeRoom func()) {
	b.Helper()
	if !b.isPostgres() {
		b.exec(`CREATE TABLE bulky (data LONGTEXT)`)
		b.exec(`CREATE TRIGGER no_room BEFORE INSERT ON bulky FOR EACH ROW ` +
			`SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'`)
		return func() { b.exec(`DROP TRIGGER no_room`) }
	}
	folder := b.TempDir()
	for above := folder; above != os.TempDir() && above != "/"; above = filepath.Dir(above) {
		_ = os.Chmod(above, 0o755) // for the server's user
	}
	mount := exec.Command("mount", "-t", "tmpfs", "-o", "size=16m,mode=0700,uid=postgres", "spillway", folder)
	if out, err := mount.CombinedOutput(); err != nil {
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
