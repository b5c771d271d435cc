package wmamqp_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/watermill-spillway/spillway/internal/faultproxy"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// raced is set where the tests are built with -race.
var raced = false

const childVariable = "SPILLWAY_WMAMQP_CHILD"

// unraced runs the test in a process built without -race, and reports whether this is another one that has nothing more
// to do: when watermill-amqp dials again, its own reads and writes of the connection race with each other.
func unraced(t *testing.T) (done bool) {
	t.Helper()
	newBroker(t) // or skip
	return unracedAlone(t)
}

// unracedAlone is unraced for a test that needs no broker.
func unracedAlone(t *testing.T) (done bool) {
	t.Helper()
	if !raced || os.Getenv(childVariable) != "" {
		return false
	}
	program, err := childProgram()
	testkit.NoError(t, err)
	child := exec.Command(program, "-test.run", "^"+t.Name()+"$", "-test.timeout", "5m", "-test.v")
	child.Env = append(os.Environ(), childVariable+"=1")
	out, err := child.CombinedOutput()
	testkit.Check(t, err == nil && strings.Contains(string(out), "--- PASS: "+t.Name()), "%v\n%s", err, out)
	return true
}

var childDir string // removed by TestMain

var childProgram = sync.OnceValues(func() (string, error) {
	var err error
	if childDir, err = os.MkdirTemp("", "wmamqp"); err != nil {
		return "", err
	}
	program := filepath.Join(childDir, "wmamqp.test")
	build := exec.Command("go", "test", "-c", "-o", program, ".")
	build.Stderr = os.Stderr
	return program, build.Run()
})

// proxy stands between a test and the broker, in this process.
type proxy struct {
	*faultproxy.Proxy
	uri string
}

func (b *broker) proxy() proxy {
	b.Helper()
	at, err := url.Parse(b.uri)
	testkit.NoError(b, err)
	p, err := faultproxy.New(at.Host)
	testkit.NoError(b, err)
	b.Cleanup(p.Close)
	at.Host = p.Addr()
	return proxy{p, at.String()}
}
