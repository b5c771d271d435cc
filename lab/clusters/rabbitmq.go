package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

const (
	rabbitPort = 21672 // and the next two; behind them those between the nodes
	rabbitEPMD = 21679
	rabbitUser = "rabbitmq"
)

const rabbitConfig = `listeners.tcp.1 = 127.0.0.1:%d
default_user = spillway
default_pass = spillway
loopback_users = none
disk_free_limit.absolute = 50MB
net_ticktime = 8
cluster_partition_handling = pause_minority
cluster_formation.peer_discovery_backend = rabbit_peer_discovery_classic_config
cluster_formation.classic_config.nodes.1 = clusters1@localhost
cluster_formation.classic_config.nodes.2 = clusters2@localhost
cluster_formation.classic_config.nodes.3 = clusters3@localhost
`

func rabbitAddress(i int) string { return fmt.Sprintf("127.0.0.1:%d", rabbitPort+i) }

// rabbitCluster starts three nodes. Queues are quorum queues with a member on each.
func rabbitCluster(ctx context.Context, folder string) (c *cluster, err error) {
	c = &cluster{name: "rabbitmq"}
	if c.databases, err = testPostgres(); err != nil {
		return nil, err
	}
	c.closing = append(c.closing, killEPMD)
	home, err := folderFor(folder, "home", rabbitUser) // the nodes have one cookie
	if err != nil {
		return nil, err
	}
	var addresses []string
	for i := range 3 {
		n, err := rabbitNode(folder, home, i)
		if err != nil {
			return c, err
		}
		c.nodes = append(c.nodes, n)
		addresses = append(addresses, rabbitAddress(i))
		if err := errors.Join(n.start(), n.ready(ctx)); err != nil { // one after the other, or each begins a cluster
			return c, err
		}
	}
	uri := "amqp://spillway:spillway@" + strings.Join(addresses, ",") + "/?connection_timeout=3000&heartbeat=5"
	c.publisher = func() (message.Publisher, error) { return wmamqp.NewPublisher(uri, wmamqp.PublisherConfig{}) }
	c.subscribe = func(string) (message.Subscriber, error) {
		return wmamqp.NewSubscriber(uri, wmamqp.SubscriberConfig{InFlight: 8})
	}
	c.prepare = func(ctx context.Context, topic string) (err error) {
		if err := rabbitWhole(ctx, c.nodes); err != nil {
			return err
		}
		pub, err := wmamqp.NewPublisher(uri, wmamqp.PublisherConfig{})
		if err != nil {
			return err
		}
		return errors.Join(pub.InitializeTopics(topic), pub.Close())
	}
	c.rounds = []round{
		{name: "the first node is killed", breaks: func(ctx context.Context, _ string) error {
			return c.nodes[0].crashed(ctx, unavailable)
		}},
		{name: "each node restarts", breaks: func(ctx context.Context, _ string) error {
			return rolling(ctx, c.nodes)
		}},
		{name: "the first node hangs", breaks: func(ctx context.Context, _ string) error {
			return hangs(ctx, 2*unavailable, c.nodes[0])
		}},
		{name: "the first node is cut off from the others", breaks: func(ctx context.Context, _ string) error {
			if err := rabbitCut(ctx, c.nodes, true); err != nil {
				return err
			}
			return errors.Join(sleep(ctx, 2*unavailable), rabbitCut(ctx, c.nodes, false))
		}},
		{name: "two of three nodes hang", breaks: func(ctx context.Context, _ string) error {
			return hangs(ctx, 2*unavailable, c.nodes[0], c.nodes[1])
		}},
		{name: "the first node is killed, with campaigns, drains and the console", busy: true,
			breaks: func(ctx context.Context, _ string) error { return c.nodes[0].crashed(ctx, unavailable) }},
	}
	return c, nil
}

// rabbitWhole waits until each node is seen by all others, and restarts those that are not. A node of RabbitMQ 3.10
// that hung can stay outside, with "running_partitioned_network", and take clients: then queues are known to some nodes
// alone. One that paused may fail to boot: "BOOT FAILED", badarg in rabbit_classic_queue.
func rabbitWhole(ctx context.Context, nodes []*node) error {
	for tries := 0; ; tries++ {
		alone := rabbitAlone(ctx, nodes)
		switch {
		case len(alone) == 0:
			return nil
		case tries == 5 || ctx.Err() != nil:
			return fmt.Errorf("%s is not seen by all nodes\n%s", alone[0].name, alone[0].said())
		}
		for _, n := range alone {
			fmt.Fprintf(os.Stderr, "clusters: %s is not seen by all nodes, and is restarted\n", n.name)
			if err := n.crashed(ctx, 0); err != nil {
				return err
			}
		}
	}
}

// rabbitAlone returns the nodes that others do not see for longer than a node takes to boot.
func rabbitAlone(ctx context.Context, nodes []*node) (alone []*node) {
	const sees = `Nodes = ['clusters1@localhost', 'clusters2@localhost', 'clusters3@localhost'],
		Views = [V || N <- Nodes, V <- [rpc:call(N, rabbit_nodes, all_running, [], 10000)], is_list(V)],
		Seen = fun(N) -> length([V || V <- Views, lists:member(N, V)]) end,
		case [N || N <- Nodes, Seen(N) < 2] of [] -> [N || N <- Nodes, Seen(N) < 3]; Outside -> Outside end.`
	for until := time.Now().Add(time.Minute); ; {
		if alone = unanswering(ctx, nodes); len(alone) == 0 {
			if text, err := rabbitEval(ctx, nodes[0], sees); err == nil {
				alone = slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool {
					return !strings.Contains(text, n.name+"@")
				})
			} else {
				alone = nodes[:1]
			}
		}
		if len(alone) == 0 || time.Now().After(until) || sleep(ctx, time.Second) != nil {
			return alone
		}
	}
}

// unanswering returns the nodes that take no clients.
func unanswering(ctx context.Context, nodes []*node) (found []*node) {
	for _, n := range nodes {
		if n.answers(ctx) != nil {
			found = append(found, n)
		}
	}
	return found
}

func rabbitEval(ctx context.Context, n *node, text string) (string, error) {
	return output(ctx, rabbitUser, n.env, "/usr/lib/rabbitmq/bin/rabbitmqctl", "eval", text)
}

// rabbitCut gives the first node a cookie with which the others refuse it, or the right one. The others do so at the
// same time: if one of them still sees the first node, all of them pause.
func rabbitCut(ctx context.Context, nodes []*node, cut bool) error {
	text := `[rpc:call(N, erlang, set_cookie, ['clusters1@localhost', erlang:get_cookie()]) || N <- ['clusters2@localhost', 'clusters3@localhost']].`
	if cut {
		text = `Others = ['clusters2@localhost', 'clusters3@localhost'],
			[rpc:call(N, erlang, set_cookie, ['clusters1@localhost', another]) || N <- Others],
			[rpc:call(N, erlang, disconnect_node, ['clusters1@localhost']) || N <- Others],
			timer:sleep(2000), [false = lists:member('clusters1@localhost', rpc:call(N, erlang, nodes, [])) || N <- Others].`
	}
	_, err := rabbitEval(ctx, nodes[1], text)
	return err
}

func rabbitNode(parent, home string, i int) (*node, error) {
	name := fmt.Sprint("clusters", i+1)
	folder, err := folderFor(parent, name, rabbitUser)
	if err != nil {
		return nil, err
	}
	config, plugins := filepath.Join(parent, name+".conf"), filepath.Join(parent, "plugins")
	err = errors.Join(os.WriteFile(config, fmt.Appendf(nil, rabbitConfig, rabbitPort+i), 0o644),
		os.WriteFile(plugins, []byte("[]."), 0o644), os.WriteFile(filepath.Join(parent, "env"), nil, 0o644))
	if err != nil {
		return nil, err
	}
	n := &node{name: name, folder: folder, user: rabbitUser, command: []string{"/usr/lib/rabbitmq/bin/rabbitmq-server"}}
	n.env = []string{"HOME=" + home, "RABBITMQ_NODENAME=" + name + "@localhost", "RABBITMQ_CONFIG_FILE=" + config,
		"RABBITMQ_CONF_ENV_FILE=" + filepath.Join(parent, "env"), "RABBITMQ_ENABLED_PLUGINS_FILE=" + plugins,
		"RABBITMQ_MNESIA_BASE=" + folder, "RABBITMQ_LOG_BASE=" + folder, "RABBITMQ_LOGS=-",
		"RABBITMQ_PID_FILE=" + filepath.Join(folder, "server.pid"), fmt.Sprint("RABBITMQ_DIST_PORT=", rabbitPort+10+i),
		fmt.Sprint("ERL_EPMD_PORT=", rabbitEPMD), "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}"}
	n.answers = func(ctx context.Context) error {
		conn, err := amqp091.DialConfig("amqp://spillway:spillway@"+rabbitAddress(i)+"/", amqp091.Config{
			Dial: amqp091.DefaultDial(3 * time.Second)})
		if err != nil {
			return err
		}
		return conn.Close()
	}
	return n, nil
}

// killEPMD ends the port mapper, which outlives its nodes.
func killEPMD() error {
	cmd := exec.Command("epmd", "-port", fmt.Sprint(rabbitEPMD), "-kill")
	cmd.Env = append(os.Environ(), "ERL_EPMD_RELAXED_COMMAND_CHECK=1")
	_ = cmd.Run()
	return nil
}
