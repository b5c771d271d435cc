package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/watermill-spillway/spillway/internal/testing/services"
)

// setting is the source and the database of a run, which are its own.
type setting struct {
	*plan
	database string
	db       *sql.DB
	broker   broker
	drop     func() error
}

func (p *plan) outputs() string { return p.Topic + "-outputs" }

func prepare(p *plan, database string) (s *setting, err error) {
	s = &setting{plan: p, database: database}
	if s.broker, err = brokerOf(p); err != nil {
		return nil, err
	}
	if err := s.makeBase(database); err != nil {
		return nil, err
	}
	for _, statement := range []string{
		`CREATE TABLE effects (n ` + map[string]string{"pgx": "BIGSERIAL", "mysql": "BIGINT AUTO_INCREMENT"}[p.Driver] +
			` PRIMARY KEY, id VARCHAR(100) NOT NULL, lane VARCHAR(100) NOT NULL, number BIGINT NOT NULL)`,
		`CREATE TABLE failures (id VARCHAR(100) PRIMARY KEY, times BIGINT NOT NULL)`,
	} {
		if _, err := s.db.Exec(statement); err != nil {
			return nil, err
		}
	}
	return s, s.broker.create()
}

var errAddress = errors.New("the address of the database cannot be read") // it holds a password

// makeBase makes a schema or database.
func (s *setting) makeBase(database string) error {
	address, err := services.Lookup(database)
	if err != nil {
		return err
	}
	name := strings.ReplaceAll(s.Topic, "-", "_")
	create, drop := `CREATE SCHEMA `+name, `DROP SCHEMA `+name+` CASCADE`
	if database == "mariadb" {
		config, err := mysql.ParseDSN(address)
		if err != nil {
			return errAddress
		}
		s.Driver, config.DBName = "mysql", name
		s.DSN = config.FormatDSN()
		s.ConsumerDSN = s.DSN
		create, drop = `CREATE DATABASE `+name+` CHARACTER SET utf8mb4`, `DROP DATABASE `+name
	} else {
		u, err := url.Parse(address)
		if err != nil {
			return errAddress
		}
		query := u.Query()
		query.Set("search_path", name)
		u.RawQuery = query.Encode()
		s.Driver, s.DSN = "pgx", u.String()
		query.Set("application_name", name) // of consumers, see cut
		u.RawQuery = query.Encode()
		s.ConsumerDSN = u.String()
	}
	outside, err := sql.Open(s.Driver, address)
	if err != nil {
		return errAddress
	}
	if _, err := outside.Exec(create); err != nil {
		return err
	}
	s.drop = func() error {
		_, err := outside.Exec(drop)
		return errors.Join(err, outside.Close())
	}
	s.db, err = sql.Open(s.Driver, s.DSN)
	return err
}

// cut ends the connections of all consumers, in the middle of whatever they do.
func (s *setting) cut(ctx context.Context) (happened int) {
	if s.Driver != "pgx" {
		return 0
	}
	const all = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1`
	n := 0
	if s.db.QueryRowContext(ctx, all, strings.ReplaceAll(s.Topic, "-", "_")).Scan(&n) != nil || n == 0 {
		return 0
	}
	return 1
}

func (s *setting) remove() error {
	failed := errors.Join(s.db.Close(), s.broker.remove())
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		err := s.drop()
		if err == nil || time.Now().After(deadline) {
			return errors.Join(failed, err)
		}
	}
}

// idOf and keyOf say which message is the nth, of which key.
func (p *plan) idOf(n int) string { return fmt.Sprintf("%s/%d", p.keyOf(n), n) }
func (p *plan) keyOf(n int) string {
	if n >= p.SparseFrom { // many lanes, which end one after the other
		return fmt.Sprint("sparse-", n)
	}
	return fmt.Sprint("key-", n*7919%p.Keys)
}

// fate is how often a message fails, or -1 for good.
func (p *plan) fate(id string) int {
	h := rand.New(rand.NewPCG(p.Seed, hash(id))).IntN(100)
	switch {
	case h < p.Twice:
		return 2
	case h < p.Twice+p.ForGood:
		return -1
	case p.isSparse(id):
		return 1
	}
	return 0
}

// isSparse reports whether a message is of a round of few messages.
func (p *plan) isSparse(id string) bool {
	_, number, _ := strings.Cut(id, "/")
	n, err := strconv.Atoi(number)
	return err == nil && n >= p.SparseFrom
}

func hash(s string) (h uint64) {
	for _, b := range []byte(s) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

// settled is how many messages have an effect or a letter, and waiting how many rows are parked.
func (s *setting) settled(ctx context.Context) (settled, waiting int, err error) {
	parked := `(SELECT count(*) FROM spillway_parked)`
	if s.Without {
		parked = `0`
	}
	err = s.db.QueryRowContext(ctx, `SELECT (SELECT count(DISTINCT id) FROM effects) +
(SELECT count(DISTINCT id) FROM spillway_dead_letters), `+parked).Scan(&settled, &waiting)
	return settled, waiting, err
}
