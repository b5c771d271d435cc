package services

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

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
