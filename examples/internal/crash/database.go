package crash

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	_ "modernc.org/sqlite"             // registers "sqlite"

	"github.com/watermill-spillway/spillway/internal/services"
)

// openDatabase opens a PostgreSQL where there is one, else a SQLite; one whose address is given has to be there. cleanUp
// leaves nothing of the run behind.
func openDatabase(s *Setting) (db *sql.DB, cleanUp func() error, err error) {
	var remove func() error
	if address, missing := services.Lookup("postgres"); missing == nil {
		s.Driver, s.DSN, remove, err = inSchema(address)
	} else {
		s.Driver, s.DSN, remove, err = inFolder()
	}
	if err != nil {
		return nil, nil, err
	}
	if db, err = sql.Open(s.Driver, s.DSN); err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	cleanUp = func() error { return errors.Join(db.Close(), remove()) }
	if _, err := db.Exec(schema); err != nil {
		return nil, nil, errors.Join(err, cleanUp())
	}
	return db, cleanUp, nil
}

// inSchema makes a schema of the run's own, so that runs beside one another do not meet.
func inSchema(address string) (driver, dsn string, remove func() error, err error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" { // the error would show its password
		return "", "", nil, errors.New("the address of PostgreSQL is no URL: let SPILLWAY_POSTGRES be postgres://user:password@host:port/database")
	}
	name := "spillway_demo_" + strings.ToLower(rand.Text()[:12])
	if err := execute(address, `CREATE SCHEMA `+name); err != nil {
		return "", "", nil, fmt.Errorf("make a schema in PostgreSQL: start it, correct SPILLWAY_POSTGRES, or unset it to do with SQLite: %w", err)
	}
	query := u.Query()
	query.Set("search_path", name)
	u.RawQuery = query.Encode()
	return "pgx", u.String(), func() error { return execute(address, `DROP SCHEMA `+name+` CASCADE`) }, nil
}

func execute(address, statement string) error {
	db, err := sql.Open("pgx", address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}

// inFolder is a SQLite database that two processes share, hence the busy time-out.
func inFolder() (driver, dsn string, remove func() error, err error) {
	folder, err := os.MkdirTemp("", "spillway-webhooks-")
	if err != nil {
		return "", "", nil, err
	}
	dsn = "file:" + filepath.Join(folder, "webhooks.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"
	return "sqlite", dsn, func() error { return os.RemoveAll(folder) }, nil
}

func (s *Setting) database() string {
	if s.Driver == "pgx" {
		return "PostgreSQL"
	}
	return "SQLite, as no PostgreSQL answers"
}
