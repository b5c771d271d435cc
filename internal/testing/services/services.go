// Package services returns the addresses of the real servers for tests and examples: Kafka, RabbitMQ, Redis,
// PostgreSQL, MariaDB and NATS. Prometheus is particular: what needs one starts its own with StartPrometheus, as its
// configuration says what it watches.
//
// An address comes from the environment (SPILLWAY_KAFKA, SPILLWAY_AMQP, SPILLWAY_REDIS, SPILLWAY_POSTGRES,
// SPILLWAY_MYSQL, SPILLWAY_NATS), or else is that of the server which "make services" starts. A test without its server
// is skipped, but with CI=true it fails: there a skipped test is a hole in the tests. SPILLWAY_EMBEDDED=1 skips all of
// them, for "make check".
//
// Fault tests stop, kill and restart the servers that "make services" started. So packages whose tests do that must not
// be tested beside packages that use the same servers. "make test" has three lanes, each with servers of its own: the
// folder and the ports of a lane are in SPILLWAY_SERVICES_DIR, SPILLWAY_POSTGRES_PORT and SPILLWAY_MYSQL_PORT.
//
// The work is done by services.sh, which this package calls. It needs bash and, to install servers, Debian's apt. The
// NATS server is a Go module: services.sh builds it, outside this module's go.mod.
package services

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A server is what services.sh knows under the same name. Its ports and addresses are repeated there.
type server struct {
	name     string // for services.sh
	variable string // of the environment, with the address
	portVar  string
	port     string
	address  string // with %s for host:port
}

var servers = []server{
	{"kafka", "SPILLWAY_KAFKA", "SPILLWAY_KAFKA_PORT", "19092", "%s"},
	{"rabbitmq", "SPILLWAY_AMQP", "SPILLWAY_AMQP_PORT", "19672", "amqp://spillway:spillway@%s/"},
	{"redis", "SPILLWAY_REDIS", "SPILLWAY_REDIS_PORT", "19379", "%s"},
	{"postgres", "SPILLWAY_POSTGRES", "SPILLWAY_POSTGRES_PORT", "19432",
		"postgres://spillway:spillway@%s/spillway?sslmode=disable"},
	{"mariadb", "SPILLWAY_MYSQL", "SPILLWAY_MYSQL_PORT", "19306", "spillway:spillway@tcp(%s)/spillway"},
	{"nats", "SPILLWAY_NATS", "SPILLWAY_NATS_PORT", "19222", "nats://%s"},
	{"prometheus", "SPILLWAY_PROMETHEUS", "SPILLWAY_PROMETHEUS_PORT", "19090", "http://%s"},
}

// Kafka returns the addresses of its brokers.
func Kafka(t testing.TB) []string {
	t.Helper()
	brokers := strings.Split(address(t, "kafka"), ",")
	for i := range brokers {
		brokers[i] = strings.TrimSpace(brokers[i])
	}
	return brokers
}

// AMQP returns the URL of RabbitMQ.
func AMQP(t testing.TB) string {
	t.Helper()
	return address(t, "rabbitmq")
}

// Redis returns the host:port of Redis.
func Redis(t testing.TB) string {
	t.Helper()
	return address(t, "redis")
}

// Postgres returns the URL of PostgreSQL.
func Postgres(t testing.TB) string {
	t.Helper()
	return address(t, "postgres")
}

// MySQL returns the data source name of MariaDB, as github.com/go-sql-driver/mysql reads it.
func MySQL(t testing.TB) string {
	t.Helper()
	return address(t, "mariadb")
}

// NATS returns the URL of a NATS server with JetStream.
func NATS(t testing.TB) string {
	t.Helper()
	return address(t, "nats")
}

// Need skips the test unless all these servers, by their names for Lookup, are there.
func Need(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		address(t, name)
	}
}

// Lookup returns the address of a server: kafka (comma separated), rabbitmq, redis, postgres, mariadb, nats or
// prometheus.
func Lookup(name string) (string, error) {
	s, err := find(name)
	if err != nil {
		return "", err
	}
	if given := os.Getenv(s.variable); given != "" {
		return given, nil
	}
	conn, err := net.DialTimeout("tcp", s.hostPort(), 2*time.Second)
	if err != nil {
		return "", fmt.Errorf("services: no %s: start it with \"make services\", or set %s to the address of yours: %w", name,
			s.variable, err)
	}
	_ = conn.Close()
	return s.ours(), nil
}

// Restart stops a server gracefully, starts it, and returns when it answers again.
func Restart(t testing.TB, name string) {
	t.Helper()
	control(t, "restart", name)
}

// Stop stops a server gracefully. It is started again when the test ends.
func Stop(t testing.TB, name string) {
	t.Helper()
	startAfter(t, name)
	control(t, "stop", name)
}

// Kill crashes a server: SIGKILL to all its processes. It is started again when the test ends.
func Kill(t testing.TB, name string) {
	t.Helper()
	startAfter(t, name)
	control(t, "kill", name)
}

// RabbitMQCtl runs rabbitmqctl on RabbitMQ, for what no AMQP client can do: policies, and alarms.
func RabbitMQCtl(t testing.TB, arguments ...string) {
	t.Helper()
	control(t, "rabbitmqctl", "rabbitmq", arguments...)
}

// KeepQueues makes RabbitMQ write down which queues there are. Else a durable queue that was declared in the two
// seconds before a Kill is gone after it: Mnesia's log is written late.
func KeepQueues(t testing.TB) {
	t.Helper()
	RabbitMQCtl(t, "eval", "mnesia:sync_log().")
}

// Start starts a server that was stopped or killed, with the data it had, and returns when it answers.
func Start(t testing.TB, name string) {
	t.Helper()
	control(t, "start", name)
}

// ErrNotOurs is wrapped by the error of Control for a server that services.sh did not start.
var ErrNotOurs = errors.New("not ours to control")

// Control stops, starts, restarts or kills a server, or runs rabbitmqctl with arguments, for programs: tests call Stop,
// Start, Restart, Kill and RabbitMQCtl. Nothing starts the server again but another call.
func Control(command, name string, arguments ...string) error {
	out, err := execute(nil, append([]string{command, name}, arguments...)...)
	switch {
	case err == nil:
		return nil
	case exitCode(err) == notOurs:
		return fmt.Errorf("services: %s %s: %w: start it with \"make services\", and unset the variable with its address",
			command, name, ErrNotOurs)
	}
	return fmt.Errorf("services: %s %s: %w\n%s", command, name, err, out)
}

func find(name string) (server, error) {
	for _, s := range servers {
		if s.name == name {
			return s, nil
		}
	}
	return server{}, fmt.Errorf("services: no server %q", name)
}

func (s server) hostPort() string {
	port := os.Getenv(s.portVar)
	if port == "" {
		port = s.port
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// ours is the address of the server that services.sh starts.
func (s server) ours() string { return fmt.Sprintf(s.address, s.hostPort()) }

// patience is how long a test waits in CI for a server that does not answer.
var patience = time.Minute

func inCI() bool { return os.Getenv("CI") == "true" }

func skipEmbedded(t testing.TB, name string) {
	t.Helper()
	if os.Getenv("SPILLWAY_EMBEDDED") == "1" {
		t.Skipf("services: %s is not asked with SPILLWAY_EMBEDDED=1: run \"make test\"", name)
	}
}

func address(t testing.TB, name string) string {
	t.Helper()
	skipEmbedded(t, name)
	found, err := Lookup(name)
	for until := time.Now().Add(patience); err != nil && inCI() &&
		time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		found, err = Lookup(name) // a test beside this one restarts the server
	}
	switch {
	case err != nil && inCI():
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	return found
}

// startAfter leaves the server as it was found, also when the test fails in between.
func startAfter(t testing.TB, name string) {
	t.Helper()
	skipEmbedded(t, name)
	t.Cleanup(func() {
		if out, err := run("start", name); err != nil && exitCode(err) != notOurs {
			t.Errorf("services: start %s again: %v\n%s", name, err, out)
		}
	})
}

// notOurs is the exit status of services.sh for a server that it did not start.
const notOurs = 3

func control(t testing.TB, command, name string, arguments ...string) {
	t.Helper()
	skipEmbedded(t, name)
	s, err := find(name)
	if err != nil {
		t.Fatal(err)
	}
	out, err := execute(nil, append([]string{command, name}, arguments...)...)
	if err == nil {
		return
	}
	if exitCode(err) != notOurs {
		t.Fatalf("services: %s %s: %v\n%s", command, name, err, out)
	}
	given := os.Getenv(s.variable)
	if inCI() && (given == "" || given == s.ours()) {
		t.Fatalf("services: cannot %s %s: something else than services.sh runs it\n%s", command, name, out)
	}
	t.Skipf("services: NOT TESTED: %s is not ours to %s: unset %s and run \"make services\"\n%s", name, command,
		s.variable, out)
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

func run(command, name string, environment ...string) (string, error) {
	return execute(environment, command, name)
}

func execute(environment []string, arguments ...string) (string, error) {
	script, err := script()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, script, arguments...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// script finds services.sh from the folder of the test, which is its package's.
func script() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(folder, "internal", "testing", "services", "services.sh")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		above := filepath.Dir(folder)
		if above == folder {
			return "", errors.New("services: internal/testing/services/services.sh is in no folder above this one")
		}
		folder = above
	}
}

// OwnKafka starts a Kafka of the test's own with these lines in its server.properties, and returns its addresses. Its
// listener with SASL is two ports behind: see Secured. It stops with the test. Without our Kafka the test is skipped.
func OwnKafka(t testing.TB, properties string) (brokers []string, secured TLS) {
	t.Helper()
	Kafka(t)                                                   // is it installed?
	folder, err := os.MkdirTemp("/var/tmp", "spillway-kafka-") // not below a folder that others must not enter
	if err != nil {
		t.Fatal(err)
	}
	data := folder
	if root := os.Getenv("SPILLWAY_SERVICES_ROOT"); root != "" { // services.sh keeps its data beside those of other servers
		data += "-" + filepath.Base(root)
	}
	port := freePorts(t, 4)
	jars := os.Getenv("SPILLWAY_KAFKA_JARS")
	if jars == "" {
		if jars = os.Getenv("SPILLWAY_SERVICES_DIR"); jars == "" {
			jars = fmt.Sprintf("/var/tmp/spillway-services-%d", os.Getuid())
		}
	}
	environment := []string{"SPILLWAY_SERVICES_DIR=" + folder, "SPILLWAY_KAFKA=", "SPILLWAY_KAFKA_JARS=" + jars,
		"SPILLWAY_KAFKA_PORT=" + strconv.Itoa(port), "SPILLWAY_KAFKA_PROPERTIES=" + properties}
	t.Cleanup(func() {
		if out, err := run("down", "kafka", environment...); err != nil {
			t.Errorf("services: stop Kafka: %v\n%s", err, out)
		}
		_, _ = os.RemoveAll(folder), os.RemoveAll(data)
	})
	if out, err := run("up", "kafka", environment...); err != nil {
		t.Fatalf("services: start Kafka: %v\n%s", err, out)
	}
	at := func(beside int) string { return fmt.Sprintf("127.0.0.1:%d", port+beside) }
	tls := filepath.Join(data, "kafka", "tls")
	return []string{at(0)}, TLS{CA: filepath.Join(tls, "ca.pem"), Cert: filepath.Join(tls, "client.pem"),
		Key: filepath.Join(tls, "client.key"), Host: at(2), Certified: at(3)}
}

// freePorts returns the first of n ports in a row that nothing listens at, below those that the system gives to clients:
// one of these may be taken before a server that needs seconds listens.
func freePorts(t testing.TB, n int) (first int) {
	t.Helper()
	for range 100 {
		first, free := 24000+n*rand.IntN(7000/n), true
		for port := first; port < first+n && free; port++ {
			listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if free = err == nil; free {
				_ = listener.Close()
			}
		}
		if free {
			return first
		}
	}
	t.Fatal("services: no ports in a row are free")
	return 0
}

// TLS is how a client reaches a server with TLS. The user is spillway; its password at a listener of Kafka is Password.
type TLS struct {
	CA, Cert, Key string // files in PEM; the certificate's name is spillway
	Host          string // and port
	Certified     string // host and port of Kafka's listener that wants a certificate
}

// Password is that of Kafka's user spillway, and of MariaDB's user certified, who needs a certificate too.
const Password = "spill:way@"

// Secured returns how kafka, rabbitmq, postgres or mariadb is reached with TLS. A test with another party's server is
// skipped.
func Secured(t testing.TB, name string) TLS {
	t.Helper()
	address(t, name)
	s, err := find(name)
	if err != nil {
		t.Fatal(err)
	}
	out, err := execute(nil, "certificates", name)
	switch {
	case exitCode(err) == notOurs && !inCI():
		t.Skipf("services: NOT TESTED: %s is not ours: unset %s and run \"make services\"", name, s.variable)
	case err != nil:
		t.Fatalf("services: certificates %s: %v\n%s", name, err, out)
	}
	folder := strings.TrimSpace(out)
	secured := TLS{CA: filepath.Join(folder, "ca.pem"), Cert: filepath.Join(folder, "client.pem"),
		Key:  filepath.Join(folder, "client.key"),
		Host: s.hostPort()}
	host, text, err := net.SplitHostPort(secured.Host)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	at := func(beside int) string { return fmt.Sprintf("%s:%d", host, port+beside) }
	switch name { // as in kafka.sh and rabbitmq.sh
	case "kafka":
		secured.Host, secured.Certified = at(2), at(3)
	case "rabbitmq":
		secured.Host = at(3)
	}
	return secured
}
