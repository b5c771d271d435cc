package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

const poolerPort = 21442

// A server that is unavailable is asked again after a second. PgBouncer's own default, 15 s, would be added to each
// restart.
const poolerConfig = `[databases]
* = host=127.0.0.1 port=%d user=spillway password=spillway
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
admin_users = spillway
pool_mode = %s
default_pool_size = %d
max_client_conn = 400
server_login_retry = 1
logfile = %s
`

// poolerCluster starts a PostgreSQL behind a PgBouncer. In transaction mode pgx must prepare nothing.
func poolerCluster(mode, parameter string, size int) func(context.Context, string) (*cluster, error) {
	return func(ctx context.Context, folder string) (*cluster, error) {
		c := &cluster{name: "pgbouncer, " + mode}
		if err := testKafka(c); err != nil {
			return nil, err
		}
		server, err := postgresPrimary(ctx, folder, "")
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, server)
		if err := errors.Join(server.start(), server.ready(ctx)); err != nil {
			return c, err
		}
		address := fmt.Sprintf("postgres://spillway:spillway@127.0.0.1:%d/%%s?sslmode=disable&connect_timeout=3%s",
			poolerPort, parameter)
		c.databases = databases{driver: "pgx", admin: postgresDSN(postgresPort), of: func(name string, _ int) string {
			return fmt.Sprintf(address, name)
		}}
		pooler, err := poolerNode(folder, mode, size, func(ctx context.Context) error {
			return c.databases.exec(ctx, c.databases.of("postgres", 0), `SELECT 1`)
		})
		if err != nil {
			return c, err
		}
		c.nodes = append(c.nodes, pooler)
		if err := errors.Join(pooler.start(), pooler.ready(ctx)); err != nil {
			return c, err
		}
		if mode == "transaction" {
			prepares := fmt.Sprintf("postgres://spillway:spillway@127.0.0.1:%d/postgres?sslmode=disable", poolerPort)
			if err := refuses(ctx, "pgx", prepares, "pooler"); err != nil {
				return c, err
			}
		}
		console := func(ctx context.Context, command string) error {
			return c.databases.exec(ctx, fmt.Sprintf(address, "pgbouncer")+"&default_query_exec_mode=simple_protocol",
				command)
		}
		crash := func(ctx context.Context, _ string) error { return pooler.crashed(ctx, unavailable) }
		c.rounds = []round{
			{name: "the pooler is killed", breaks: crash},
			{name: "the pooler restarts", breaks: func(ctx context.Context, _ string) error {
				return pooler.restart(ctx, syscall.SIGINT)
			}},
			{name: "the pooler hangs", breaks: func(ctx context.Context, _ string) error {
				return hangs(ctx, 2*unavailable, pooler)
			}},
			{name: "the pooler pauses", breaks: func(ctx context.Context, topic string) error {
				// PAUSE waits for the server's sessions: in session mode for good
				within, cancel := context.WithTimeout(ctx, unavailable)
				defer cancel()
				_ = console(within, "PAUSE "+topic)
				<-within.Done()
				return errors.Join(ctx.Err(), console(ctx, "RESUME "+topic))
			}},
			{name: "the server behind the pooler restarts", breaks: func(ctx context.Context, _ string) error {
				return server.restart(ctx, syscall.SIGINT)
			}},
			{name: "the pooler is killed, with parking, campaigns, drains and the console", breaks: crash, busy: true},
		}
		return c, nil
	}
}

func poolerNode(parent, mode string, size int, answers func(context.Context) error) (*node, error) {
	folder, err := folderFor(parent, "pgbouncer", postgresUser)
	if err != nil {
		return nil, err
	}
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			return nil, fmt.Errorf("run internal/testing/services/services.sh install pgbouncer: %w", err)
		}
	}
	file := filepath.Join(parent, "pgbouncer.ini")
	config := fmt.Appendf(nil, poolerConfig, postgresPort, poolerPort, mode, size, filepath.Join(folder, "log"))
	version, err := exec.Command(program, "--version").Output()
	if err != nil {
		return nil, err
	}
	minor := 0 // since 1.21 it can keep prepared statements; without, a program must be told
	if _, err := fmt.Sscanf(string(version), "PgBouncer 1.%d", &minor); err != nil || minor >= 21 {
		config = append(config, "max_prepared_statements = 0\n"...)
	}
	return &node{name: "pgbouncer", folder: folder, user: postgresUser, command: []string{program, "-q", file},
			answers: answers},
		os.WriteFile(file, config, 0o644)
}
