package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/faultproxy"
)

const (
	postgresPort = 21432 // and the next one
	postgresUser = "postgres"
)

const (
	postgresConfig = `
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_buffers = 64MB
max_connections = 200
wal_level = replica
hot_standby = on
wal_keep_size = 256MB
`
	postgresWaits  = "synchronous_standby_names = '*'\n"
	postgresAccess = `
host all all 127.0.0.1/32 scram-sha-256
host replication all 127.0.0.1/32 scram-sha-256
`
)

// postgresCluster starts a primary with a synchronous standby. Messages come from the Kafka of the test servers.
func postgresCluster(ctx context.Context, folder string) (*cluster, error) {
	c := &cluster{name: "postgres"}
	if err := testKafka(c); err != nil {
		return nil, err
	}
	primary, err := postgresPrimary(ctx, folder, postgresWaits)
	if err != nil {
		return nil, err
	}
	c.nodes = append(c.nodes, primary)
	wire, err := faultproxy.New(fmt.Sprint("127.0.0.1:", postgresPort))
	if err != nil {
		return c, err
	}
	c.closing = append(c.closing, func() error { wire.Close(); return nil })
	if err := errors.Join(primary.start(), primary.ready(ctx)); err != nil {
		return c, err
	}
	standby, err := postgresStandby(ctx, folder, wire)
	if err != nil {
		return c, err
	}
	c.nodes = append(c.nodes, standby)
	if err := errors.Join(standby.start(), standby.ready(ctx)); err != nil {
		return c, err
	}
	if err := refuses(ctx, "pgx", postgresDSN(postgresPort+1), "standby"); err != nil {
		return c, err
	}
	address := fmt.Sprintf("postgres://spillway:spillway@127.0.0.1:%d,127.0.0.1:%d/%%s?sslmode=disable"+
		"&target_session_attrs=read-write&connect_timeout=3", postgresPort, postgresPort+1)
	c.databases = databases{driver: "pgx", admin: fmt.Sprintf(address, "postgres"),
		of: func(name string, _ int) string {
			return fmt.Sprintf(address, name)
		}}
	c.rounds = []round{
		{name: "the primary restarts", breaks: func(ctx context.Context, _ string) error {
			return primary.restart(ctx, syscall.SIGINT)
		}},
		{name: "the primary hangs", breaks: func(ctx context.Context, _ string) error {
			return hangs(ctx, 2*unavailable, primary)
		}},
		{name: "the standby is unavailable", breaks: func(ctx context.Context, _ string) error {
			return standby.crashed(ctx, unavailable)
		}},
		{name: "the network between primary and standby is cut", breaks: func(ctx context.Context, _ string) error {
			wire.HalfOpen()
			defer wire.Heal()
			return sleep(ctx, unavailable)
		}},
		{name: "the primary reads only", breaks: func(ctx context.Context, _ string) error {
			return errors.Join(readOnly(ctx, "on"), sleep(ctx, unavailable), readOnly(ctx, "off"))
		}},
		{name: "the standby is promoted, with parking, campaigns, drains and the console", busy: true,
			breaks: func(ctx context.Context, _ string) error {
				primary.kill()
				return errors.Join(sleep(ctx, 3*time.Second), promote(ctx))
			}},
	}
	return c, nil
}

// readOnly has all transactions of the primary read only.
func readOnly(ctx context.Context, value string) error {
	return postgres.exec(ctx, postgresDSN(postgresPort), `ALTER SYSTEM SET default_transaction_read_only = `+value,
		`SELECT pg_reload_conf()`)
}

// postgres is for statements at an address of one node.
var postgres = &databases{driver: "pgx"}

func postgresDSN(port int) string {
	return fmt.Sprintf("postgres://spillway:spillway@127.0.0.1:%d/postgres?sslmode=disable&connect_timeout=3", port)
}

// promote makes the standby a primary that waits for none.
func promote(ctx context.Context) error {
	return postgres.exec(ctx, postgresDSN(postgresPort+1), `SELECT pg_promote()`,
		`ALTER SYSTEM SET synchronous_standby_names = ''`,
		`SELECT pg_reload_conf()`)
}

// postgresBin has the newest PostgreSQL.
func postgresBin() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(found) == 0 {
		return "", errors.New("no PostgreSQL in /usr/lib/postgresql: run make services")
	}
	return found[len(found)-1], nil
}

func postgresPrimary(ctx context.Context, parent, settings string) (*node, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	folder, err := folderFor(parent, "primary", postgresUser)
	if err != nil {
		return nil, err
	}
	password := filepath.Join(parent, "password")
	if err := os.WriteFile(password, []byte("spillway\n"), 0o644); err != nil {
		return nil, err
	}
	data := filepath.Join(folder, "data")
	if err := runAs(ctx, postgresUser, nil, filepath.Join(bin, "initdb"), "-D", data, "-U", "spillway", "--pwfile",
		password, "-A",
		"scram-sha-256", "--no-locale", "-E", "UTF8"); err != nil {
		return nil, err
	}
	err = errors.Join(add(filepath.Join(data, "postgresql.conf"), postgresConfig+settings),
		add(filepath.Join(data, "pg_hba.conf"), postgresAccess))
	return postgresNode("primary", folder, bin, data, postgresPort), err
}

// postgresStandby follows the primary through a wire.
func postgresStandby(ctx context.Context, parent string, wire *faultproxy.Proxy) (*node, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	folder, err := folderFor(parent, "standby", postgresUser)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(folder, "data")
	host, port, err := net.SplitHostPort(wire.Addr())
	if err != nil {
		return nil, err
	}
	err = runAs(ctx, postgresUser, []string{"PGPASSWORD=spillway"}, filepath.Join(bin, "pg_basebackup"), "-R", "-c",
		"fast", "-D", data,
		"-h", host, "-p", port, "-U", "spillway")
	return postgresNode("standby", folder, bin, data, postgresPort+1), err
}

func postgresNode(name, folder, bin, data string, port int) *node {
	return &node{name: name, folder: folder, user: postgresUser,
		command: []string{filepath.Join(bin, "postgres"), "-D", data, "-p", fmt.Sprint(port)},
		answers: func(ctx context.Context) error { return postgres.exec(ctx, postgresDSN(port), `SELECT 1`) }}
}

func add(path, text string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
