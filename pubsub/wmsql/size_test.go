package wmsql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
)

// Outputs that are too large for one statement are written by several, together or not at all.
func TestLargeTogether(t *testing.T) {
	dsn := mysqltest.Database(t)
	b := newBench(t, func(t testing.TB) *sql.DB { return mysqltest.Open(t, dsn) })
	var outs []*message.Message
	for i := range 5 {
		outs = append(outs, message.NewMessage(fmt.Sprint(i), make([]byte, 5<<20)))
	}
	if err := b.pub.Publish(b.outs, outs...); err != nil {
		t.Error(err)
	}
	if n := b.backlogOf(b.outs); n != len(outs) {
		t.Errorf("%d of %d are written", n, len(outs))
	}
	outs = append(outs, message.NewMessage("too large", make([]byte, 17<<20)))
	if err := b.pub.Publish(b.outs, outs...); !errors.Is(err, classify.ErrTooLarge) {
		t.Error(err)
	}
	if n := b.backlogOf(b.outs); n != len(outs)-1 {
		t.Errorf("%d are written with one that is refused", n-len(outs)+1)
	}
}
