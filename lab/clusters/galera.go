package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
)

const galeraPort = 21316 // and the next two; ports of the replication are 10, 20 and 30 above

// galeraCluster starts three nodes, each of which takes writes. The two instances use different ones, so commits meet.
func galeraCluster(ctx context.Context, folder string) (*cluster, error) {
	c := &cluster{name: "galera", tries: 20} // two nodes can want a row several times in a row
	if err := testKafka(c); err != nil {
		return nil, err
	}
	var members []string
	for i := range 3 {
		members = append(members, fmt.Sprint("127.0.0.1:", galeraPort+10+i))
	}
	for i := range 3 {
		port := galeraPort + i
		n, err := mariaNode(ctx, folder, fmt.Sprint("galera-", i+1), port, "--binlog-format=ROW",
			"--innodb-autoinc-lock-mode=2",
			"--loose-plugin-wsrep-provider=OFF", // or 11.8 refuses to change wsrep_provider_options
			"--wsrep-on=ON", "--wsrep-provider=/usr/lib/galera/libgalera_smm.so", "--wsrep-cluster-name=spillway",
			fmt.Sprint("--wsrep-node-name=galera-", i+1), fmt.Sprint("--wsrep-node-address=127.0.0.1:", port+10),
			"--wsrep-sst-method=rsync", fmt.Sprint("--wsrep-sst-receive-address=127.0.0.1:", port+30),
			fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:%d;ist.recv_addr=127.0.0.1:%d;gcache.size=64M",
				port+10, port+20), "--wsrep-cluster-address=gcomm://"+strings.Join(members, ","))
		if err != nil {
			return c, err
		}
		n.recovers = recovered
		c.nodes = append(c.nodes, n)
		command := n.command
		if i == 0 {
			n.command = append(command[:len(command):len(command)], "--wsrep-new-cluster")
		}
		if err := errors.Join(n.start(), n.ready(ctx)); err != nil {
			return c, err
		}
		n.command = command
	}
	for i := range instances {
		mysql.RegisterDialContext(fmt.Sprint("galera", i),
			func(ctx context.Context, _ string) (conn net.Conn, err error) {
				for n := range 3 {
					if conn, err = (&net.Dialer{}).DialContext(ctx, "tcp",
						fmt.Sprint("127.0.0.1:", galeraPort+(i+n)%3)); err == nil {
						return conn, nil
					}
				}
				return nil, err
			})
	}
	c.databases = databases{driver: "mysql", admin: "spillway:spillway@galera0(any)/",
		of: func(name string, instance int) string {
			return fmt.Sprintf("shop:spillway@galera%d(any)/%s?timeout=3s", instance, name)
		}}
	isolate := func(ctx context.Context, i, isolated int) error {
		return maria.exec(ctx, mariaDSN(galeraPort+i), fmt.Sprintf(`SET GLOBAL wsrep_provider_options = 'gmcast.isolate=%d'`, isolated))
	}
	c.rounds = []round{
		{name: "nothing, while commits meet on two nodes", breaks: func(context.Context, string) error { return nil }},
		{name: "a node is killed", breaks: func(ctx context.Context, _ string) error {
			return c.nodes[1].crashed(ctx, unavailable)
		}},
		{name: "each node restarts", breaks: func(ctx context.Context, _ string) error {
			return rolling(ctx, c.nodes)
		}},
		{name: "a node hangs", breaks: func(ctx context.Context, _ string) error {
			return hangs(ctx, 2*unavailable, c.nodes[1])
		}},
		{name: "a node is cut off from the others", breaks: func(ctx context.Context, _ string) error {
			return errors.Join(isolate(ctx, 1, 1), sleep(ctx, 2*unavailable), isolate(ctx, 1, 0))
		}},
		{name: "no node has a majority", breaks: func(ctx context.Context, _ string) error {
			return errors.Join(isolate(ctx, 0, 1), isolate(ctx, 1, 1), sleep(ctx, 2*unavailable), isolate(ctx, 0, 0),
				isolate(ctx, 1, 0))
		}},
		{name: "a node is killed, with parking, campaigns, drains and the console", busy: true,
			breaks: func(ctx context.Context, _ string) error { return c.nodes[1].crashed(ctx, unavailable) }},
	}
	return c, nil
}

var position = regexp.MustCompile(`Recovered position: (\S+)`)

// recovered returns the option with which a node that was killed goes on where it was, as Galera's own script does.
func recovered(n *node) (option []string, err error) {
	log := filepath.Join(n.folder, "recovered.err")
	command := append(n.command[:len(n.command):len(n.command)], "--wsrep-recover", "--log-error="+log)
	if err := runAs(context.Background(), n.user, nil, command[0], command[1:]...); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(log)
	err = errors.Join(err, os.Remove(log))
	if found := position.FindSubmatch(text); found != nil {
		return []string{"--wsrep-start-position=" + string(found[1])}, err
	}
	return nil, err
}
