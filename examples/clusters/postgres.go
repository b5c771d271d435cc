package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
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
synchronous_standby_names = '*'
`
	postgresAccess = `
host all all 127.0.0.1/32 scram-sha-256
host replication all 127.0.0.1/32 scram-sha-256
`
)

// postgresCluster starts a primary with a synchronous standby. Messages come from the Kafka of the test servers.
func postgresCluster(ctx context.Context, folder string) (*cluster, error) {
	c := &cluster{name: "postgres", origin: wmkafka.Origin}
	address, err := services.Lookup("kafka")
	if err != nil {
		return nil, err
	}
	brokers := []string{address}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(found) == 0 {
		return nil, errors.New("no PostgreSQL in /usr/lib/postgresql: run make services")
	}
	bin := found[len(found)-1]
	primary, err := postgresPrimary(folder, bin)
	if err != nil {
		return nil, err
	}
	c.nodes = append(c.nodes, primary)
	if err := errors.Join(primary.start(), primary.ready(ctx)); err != nil {
		return c, err
	}
	standby, err := postgresStandby(folder, bin)
	if err != nil {
		return c, err
	}
	c.nodes = append(c.nodes, standby)
	if err := errors.Join(standby.start(), standby.ready(ctx)); err != nil {
		return c, err
	}
	if err := refusesStandby(ctx); err != nil {
		return c, err
	}
	c.database = fmt.Sprintf("postgres://spillway:spillway@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable"+
		"&target_session_attrs=read-write&connect_timeout=3", postgresPort, postgresPort+1)
	c.prepare = func(_ context.Context, topic string) error { return makeTopic(brokers, topic) }
	c.publisher = func() (message.Publisher, error) { return wmkafka.NewPublisher(brokers, wmkafka.PublisherConfig{}) }
	c.subscribe = func(topic string) (message.Subscriber, error) {
		return wmkafka.NewSubscriber(brokers, topic, wmkafka.SubscriberConfig{InFlight: 8})
	}
	away := 8 * time.Second
	c.rounds = []round{
		{"the primary restarts", func(ctx context.Context, _ string) error { return primary.restart(ctx, syscall.SIGINT) }},
		{"the primary hangs", func(ctx context.Context, _ string) error { return hangs(ctx, 2*away, primary) }},
		{"the standby is away", func(ctx context.Context, _ string) error { return standby.crashed(ctx, away) }},
		{"the standby is promoted", func(ctx context.Context, _ string) error {
			primary.kill()
			if err := sleep(ctx, 3*time.Second); err != nil {
				return err
			}
			return promote(ctx)
		}},
	}
	return c, nil
}

func postgresDSN(port int) string {
	return fmt.Sprintf("postgres://spillway:spillway@127.0.0.1:%d/postgres?sslmode=disable&connect_timeout=3", port)
}

// refusesStandby returns an error unless a service that is given the standby alone says what is wrong.
func refusesStandby(ctx context.Context) error {
	db, err := sql.Open("pgx", postgresDSN(postgresPort+1))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err = spillway.New(ctx, spillway.Config{Service: "shop", DB: db}); err == nil || !strings.Contains(err.Error(), "standby") {
		return fmt.Errorf("a standby as Config.DB: %w", err)
	}
	return nil
}

// promote makes the standby a primary that waits for none.
func promote(ctx context.Context) error {
	db, err := sql.Open("pgx", postgresDSN(postgresPort+1))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for _, statement := range []string{`SELECT pg_promote()`, `ALTER SYSTEM SET synchronous_standby_names = ''`, `SELECT pg_reload_conf()`} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func postgresPrimary(parent, bin string) (*node, error) {
	folder, err := folderFor(parent, "primary", postgresUser)
	if err != nil {
		return nil, err
	}
	password := filepath.Join(parent, "password")
	if err := os.WriteFile(password, []byte("spillway\n"), 0o644); err != nil {
		return nil, err
	}
	data := filepath.Join(folder, "data")
	if err := runAs(postgresUser, nil, filepath.Join(bin, "initdb"), "-D", data, "-U", "spillway", "--pwfile", password, "-A",
		"scram-sha-256", "--no-locale", "-E", "UTF8"); err != nil {
		return nil, err
	}
	err = errors.Join(add(filepath.Join(data, "postgresql.conf"), postgresConfig), add(filepath.Join(data, "pg_hba.conf"), postgresAccess))
	return postgresNode("primary", folder, bin, data, postgresPort), err
}

func postgresStandby(parent, bin string) (*node, error) {
	folder, err := folderFor(parent, "standby", postgresUser)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(folder, "data")
	err = runAs(postgresUser, []string{"PGPASSWORD=spillway"}, filepath.Join(bin, "pg_basebackup"), "-R", "-c", "fast", "-D", data,
		"-h", "127.0.0.1", "-p", fmt.Sprint(postgresPort), "-U", "spillway")
	return postgresNode("standby", folder, bin, data, postgresPort+1), err
}

func postgresNode(name, folder, bin, data string, port int) *node {
	return &node{name: name, folder: folder, user: postgresUser,
		command: []string{filepath.Join(bin, "postgres"), "-D", data, "-p", fmt.Sprint(port)},
		answers: func(ctx context.Context) error {
			db, err := sql.Open("pgx", postgresDSN(port))
			if err != nil {
				return err
			}
			defer func() { _ = db.Close() }()
			return db.PingContext(ctx)
		}}
}

func add(path, text string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

func runAs(name string, env []string, program string, arguments ...string) error {
	as, err := credential(name)
	if err != nil {
		return err
	}
	cmd := exec.Command(program, arguments...)
	cmd.Dir, cmd.Env = "/", append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}
