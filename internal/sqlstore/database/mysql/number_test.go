package mysql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
