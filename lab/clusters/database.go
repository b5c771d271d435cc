package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql" // registers "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/services"
)

// databases are where each round has one of its own.
type databases struct {
	driver string                                 // "pgx" or "mysql"
	admin  string                                 // the address at which they are made
	of     func(name string, instance int) string // the address of one, for an instance of the service
}

// accounts is how many rows the handlers count their effects in: several at a time want the same one.
const accounts = 16

var tables = map[string][]string{
	"pgx": {
		`CREATE TABLE effects (n BIGSERIAL PRIMARY KEY, id text NOT NULL)`,
		`CREATE TABLE probes (n BIGSERIAL PRIMARY KEY)`,
		`CREATE TABLE accounts (account integer PRIMARY KEY, effects integer NOT NULL, latest integer NOT NULL, wrong integer NOT NULL)`,
	},
	"mysql": {
		`CREATE TABLE effects (n BIGINT AUTO_INCREMENT PRIMARY KEY, id VARCHAR(40) NOT NULL)`,
		`CREATE TABLE probes (n BIGINT AUTO_INCREMENT PRIMARY KEY)`,
		`CREATE TABLE accounts (account INT PRIMARY KEY, effects INT NOT NULL, latest INT NOT NULL, wrong INT NOT NULL)`,
	},
}

// testPostgres is the PostgreSQL of the test servers.
func testPostgres() (databases, error) {
	address, err := services.Lookup("postgres")
	if err != nil {
		return databases{}, err
	}
	path := regexp.MustCompile(`(//[^/]+/)[^?]*`)
	return databases{driver: "pgx", admin: address, of: func(name string, _ int) string {
		return path.ReplaceAllString(address, "${1}"+name)
	}}, nil
}

// testKafka has a cluster of databases read its messages from the Kafka of the test servers.
func testKafka(c *cluster) error {
	address, err := services.Lookup("kafka")
	if err != nil {
		return err
	}
	kafkaTopics(c, strings.Split(address, ","))
	c.whole = func(ctx context.Context, topic string) error { return c.databases.whole(ctx, topic) }
	return nil
}

// statement has the driver's arguments.
func (d *databases) statement(text string) string {
	if d.driver == "mysql" {
		return argument.ReplaceAllString(text, "?")
	}
	return text
}

var argument = regexp.MustCompile(`\$\d`)

func (d *databases) connect(address string) (*sql.DB, error) { return sql.Open(d.driver, address) }

// exec runs statements at an address. Names in them are our own.
func (d *databases) exec(ctx context.Context, address string, statements ...string) error {
	db, err := d.connect(address)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// make makes the database of a round.
func (d *databases) make(ctx context.Context, name string) error {
	if err := d.exec(ctx, d.admin, `CREATE DATABASE `+name); err != nil {
		return err
	}
	statements := tables[d.driver]
	for account := range accounts {
		statements = append(statements[:len(statements):len(statements)],
			fmt.Sprintf(`INSERT INTO accounts VALUES (%d, 0, -1, 0)`, account))
	}
	return d.exec(ctx, d.of(name, 0), statements...)
}

// whole returns nil when each instance's database takes commits as fast as messages come.
func (d *databases) whole(ctx context.Context, name string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for instance := range instances {
		err = errors.Join(err, d.commitsInTime(ctx, d.of(name, instance)))
	}
	return err
}

func (d *databases) commitsInTime(ctx context.Context, address string) error {
	db, err := d.connect(address)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := db.PingContext(ctx); err != nil {
		return err
	}
	began := time.Now()
	insert := map[string]string{"pgx": `INSERT INTO probes DEFAULT VALUES`,
		"mysql": `INSERT INTO probes VALUES ()`}[d.driver]
	if _, err = db.ExecContext(ctx, insert); err == nil && time.Since(began) > inTime {
		err = errSlow
	}
	return err
}

func (d *databases) drop(name string) error {
	statement := `DROP DATABASE ` + name
	if d.driver == "pgx" {
		statement += ` WITH (FORCE)` // a pooler keeps connections to it
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return d.exec(ctx, d.admin, statement)
}

func (d *databases) open(name string, instance int) (*sql.DB, error) {
	db, err := d.connect(d.of(name, instance))
	if err == nil {
		db.SetMaxOpenConns(48)
		db.SetMaxIdleConns(48)
		db.SetConnMaxIdleTime(time.Minute)
	}
	return db, err
}

// refuses returns an error unless a service that is given the address does not start, and says why.
func refuses(ctx context.Context, driver, address, why string) error {
	db, err := sql.Open(driver, address)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err = spillway.New(ctx, spillway.Config{Service: "shop", DB: db}); err == nil ||
		!strings.Contains(err.Error(), why) {
		return fmt.Errorf("spillway.New does not speak of the %s: %w", why, err)
	}
	return nil
}

// counts returns what a query counts by its first column.
func (s *service) counts(ctx context.Context, query string) (found map[string]int, err error) {
	rows, err := s.db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	found = make(map[string]int)
	for rows.Next() {
		var id sql.NullString
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			return nil, err
		}
		found[id.String] = n
	}
	return found, rows.Err()
}
