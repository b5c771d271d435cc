package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	mariaPort = 21306 // and the next one
	mariaUser = "mysql"
	// mariaUsers are made on each node: one who may all, and a service, which has no right to write to a replica.
	mariaUsers = `SET sql_log_bin = 0;
CREATE USER IF NOT EXISTS spillway@'%' IDENTIFIED BY 'spillway';
GRANT ALL ON *.* TO spillway@'%' WITH GRANT OPTION;
CREATE USER IF NOT EXISTS shop@'%' IDENTIFIED BY 'spillway';
GRANT ALL ON ` + "`clusters\\_%`" + `.* TO shop@'%';
`
)

// maria is for statements at an address of one node.
var maria = &databases{driver: "mysql"}

func mariaDSN(port int) string {
	return fmt.Sprintf("spillway:spillway@tcp(127.0.0.1:%d)/?timeout=3s", port)
}

// mariaCluster starts a primary that waits for its replica before it confirms a commit.
func mariaCluster(ctx context.Context, folder string) (*cluster, error) {
	c := &cluster{name: "mariadb"}
	if err := testKafka(c); err != nil {
		return nil, err
	}
	for i := range 2 {
		n, err := mariaNode(ctx, folder, fmt.Sprint("mariadb-", i+1), mariaPort+i, "--log-bin=binlog",
			"--log-slave-updates",
			"--gtid-strict-mode=ON", fmt.Sprint("--server-id=", i+1), "--rpl-semi-sync-master-timeout=3600000",
			"--rpl-semi-sync-master-wait-point=AFTER_SYNC", "--slave-net-timeout=10")
		if err != nil {
			return c, err
		}
		c.nodes = append(c.nodes, n)
		if err := errors.Join(n.start(), n.ready(ctx)); err != nil {
			return c, err
		}
	}
	primary, replica := c.nodes[0], c.nodes[1]
	if err := errors.Join(follow(ctx, mariaPort+1, mariaPort), lead(ctx, mariaPort, true)); err != nil {
		return c, err
	}
	if err := refuses(ctx, "mysql", strings.Replace(mariaDSN(mariaPort+1), "spillway:", "shop:", 1),
		"replica"); err != nil {
		return c, err
	}
	var port atomic.Int64 // what a proxy, or a name in DNS, knows
	port.Store(mariaPort)
	mysql.RegisterDialContext("primary", func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprint("127.0.0.1:", port.Load()))
	})
	c.databases = databases{driver: "mysql", admin: "spillway:spillway@primary(any)/",
		of: func(name string, _ int) string {
			return "shop:spillway@primary(any)/" + name + "?timeout=3s&rejectReadOnly=true"
		}}
	c.rounds = []round{
		{name: "the primary restarts", breaks: func(ctx context.Context, _ string) error {
			// a primary that starts waits for no replica until it is told to
			return errors.Join(primary.restart(ctx, syscall.SIGTERM), lead(ctx, mariaPort, true))
		}},
		{name: "the primary hangs", breaks: func(ctx context.Context, _ string) error {
			return hangs(ctx, 2*unavailable, primary)
		}},
		{name: "the replica is unavailable", breaks: func(ctx context.Context, _ string) error {
			return errors.Join(replica.crashed(ctx, unavailable), follow(ctx, mariaPort+1, mariaPort), forget(ctx, mariaPort))
		}},
		{name: "the primary reads only", breaks: func(ctx context.Context, _ string) error {
			err := maria.exec(ctx, mariaDSN(mariaPort), `SET GLOBAL read_only = 1`)
			return errors.Join(err, sleep(ctx, unavailable), maria.exec(ctx, mariaDSN(mariaPort), `SET GLOBAL read_only = 0`))
		}},
		{name: "the roles are switched, and back", breaks: func(ctx context.Context, _ string) error {
			for _, to := range []int{1, 0} {
				if err := errors.Join(switchTo(ctx, mariaPort+to, mariaPort+1-to),
					sleep(ctx, time.Second)); err != nil {
					return err
				}
				port.Store(int64(mariaPort + to)) // a second late: until then the service meets one that only reads
				if err := sleep(ctx, 3*time.Second); err != nil {
					return err
				}
			}
			return nil
		}},
		{name: "the replica is promoted, with parking, campaigns, drains and the console", busy: true,
			breaks: func(ctx context.Context, _ string) error {
				primary.kill()
				err := errors.Join(sleep(ctx, 3*time.Second), lead(ctx, mariaPort+1, false))
				port.Store(mariaPort + 1)
				return err
			}},
	}
	return c, nil
}

// lead makes a node the primary, which waits for a replica or not.
func lead(ctx context.Context, port int, waits bool) error {
	wait := 0
	if waits {
		wait = 1
	}
	return maria.exec(ctx, mariaDSN(port), `STOP SLAVE`, `RESET SLAVE ALL`,
		fmt.Sprint(`SET GLOBAL rpl_semi_sync_slave_enabled = `, 1-wait),
		fmt.Sprint(`SET GLOBAL rpl_semi_sync_master_enabled = `, wait),
		`SET GLOBAL read_only = 0`)
}

// follow makes a node the replica of another one.
func follow(ctx context.Context, port, of int) error {
	return maria.exec(ctx, mariaDSN(port), `SET GLOBAL read_only = 1`, `STOP SLAVE`,
		`SET GLOBAL rpl_semi_sync_master_enabled = 0`,
		`SET GLOBAL rpl_semi_sync_slave_enabled = 1`,
		fmt.Sprintf(`CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, `+
			`MASTER_USER='spillway', MASTER_PASSWORD='spillway', MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=slave_pos`, of), `START SLAVE`)
}

// forget has a primary wait no more for what its replica had before it left: back again, the replica does not confirm
// that, and all commits would hang until the time-out.
func forget(ctx context.Context, port int) error {
	return maria.exec(ctx, mariaDSN(port), `SET GLOBAL rpl_semi_sync_master_enabled = 0`,
		`SET GLOBAL rpl_semi_sync_master_enabled = 1`)
}

// switchTo is a planned change: the old primary stops to write, and the new one has all that it wrote.
func switchTo(ctx context.Context, to, from int) error {
	if err := maria.exec(ctx, mariaDSN(from), `SET GLOBAL read_only = 1`); err != nil {
		return err
	}
	old, err := gtid(ctx, from)
	if err != nil {
		return err
	}
	return errors.Join(maria.exec(ctx, mariaDSN(to), `SELECT MASTER_GTID_WAIT('`+old+`', 10)`),
		maria.exec(ctx, mariaDSN(to), `STOP SLAVE`, `RESET SLAVE ALL`),
		maria.exec(ctx, mariaDSN(from), `SET GLOBAL gtid_slave_pos = '`+old+`'`),
		follow(ctx, from, to), lead(ctx, to, true))
}

func gtid(ctx context.Context, port int) (position string, err error) {
	db, err := maria.connect(mariaDSN(port))
	if err != nil {
		return "", err
	}
	defer func() { _ = db.Close() }()
	return position, db.QueryRowContext(ctx, `SELECT @@gtid_current_pos`).Scan(&position)
}

// mariaNode makes the data of a node.
func mariaNode(ctx context.Context, parent, name string, port int, options ...string) (*node, error) {
	folder, err := folderFor(parent, name, mariaUser)
	if err != nil {
		return nil, err
	}
	data, users := filepath.Join(folder, "data"), filepath.Join(parent, name+".sql")
	err = errors.Join(os.WriteFile(users, []byte(mariaUsers), 0o644),
		runAs(ctx, mariaUser, nil, "mariadb-install-db", "--no-defaults", "--datadir="+data,
			"--auth-root-authentication-method=normal",
			"--skip-test-db", "--skip-name-resolve"))
	n := &node{name: name, folder: folder, user: mariaUser, answers: func(ctx context.Context) error {
		return maria.exec(ctx, mariaDSN(port), `SELECT 1 FROM mysql.user LIMIT 1`)
	}}
	n.command = append([]string{"/usr/sbin/mariadbd", "--no-defaults", "--datadir=" + data, "--tmpdir=" + folder,
		"--init-file=" + users,
		"--bind-address=127.0.0.1", fmt.Sprint("--port=", port), "--socket=" + filepath.Join(folder, "sock"),
		"--pid-file=server.pid",
		"--skip-name-resolve", "--max-connections=200", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M",
		"--character-set-server=utf8mb4"}, options...)
	return n, err
}
