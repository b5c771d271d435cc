package services

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// PgBouncer starts a PgBouncer in front of the PostgreSQL at the address upstream, and returns the address of the same
// database behind it. A search path in upstream becomes that of each of its connections to the server. Settings, such
// as "pool_mode = transaction", are lines of its configuration. It stops with the test. Without the program the test
// is skipped, but with CI=true it fails. Prepared statements are not kept for
// a client, which is the default before 1.21.
func PgBouncer(t testing.TB, upstream string, settings ...string) (address string) {
	t.Helper()
	skipEmbedded(t, "pgbouncer")
	program, err := pgBouncer()
	if err != nil {
		const say = "services: %sno PgBouncer: run \"internal/testing/services/services.sh install pgbouncer\": %v"
		if inCI() {
			t.Fatalf(say, "", err)
		}
		t.Skipf(say, "NOT TESTED: ", err)
	}
	server, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(freePorts(t, 1))
	version, err := exec.Command(program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	minor := 0
	if _, err := fmt.Sscanf(string(version), "PgBouncer 1.%d", &minor); err != nil || minor >= 21 {
		settings = append([]string{"max_prepared_statements = 0"}, settings...)
	}
	config := pgBouncerConfig(server, port, settings)
	file := filepath.Join(t.TempDir(), "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(program, "-q", file)
	if os.Getuid() == 0 { // it does not run as root
		cmd.Args = append(cmd.Args, "-u", "postgres")
	}
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	behind := *server
	behind.Host = net.JoinHostPort("127.0.0.1", port)
	query := behind.Query()
	query.Del("search_path") // it takes no such setting from a client
	behind.RawQuery = query.Encode()
	for until := time.Now().Add(patience); !answersAt(behind.Host); time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("services: PgBouncer ended: %v\n%s", err, out.String())
		default:
		}
		if time.Now().After(until) {
			t.Fatalf("services: PgBouncer does not answer at %s", behind.Host)
		}
	}
	return behind.String()
}

// sbin are folders that are not in the path of ordinary users.
var sbin = []string{"/usr/sbin", "/usr/local/sbin"}

func pgBouncer() (string, error) {
	path, err := exec.LookPath("pgbouncer")
	for _, folder := range sbin {
		if err != nil {
			if path, err := exec.LookPath(filepath.Join(folder, "pgbouncer")); err == nil {
				return path, nil
			}
		}
	}
	return path, err
}

func pgBouncerConfig(server *url.URL, port string, settings []string) string {
	password, _ := server.User.Password()
	database := fmt.Sprintf("host=%s port=%s dbname=%s user=%s password=%s", server.Hostname(), server.Port(),
		strings.TrimPrefix(server.Path, "/"), server.User.Username(), password)
	if path := server.Query().Get("search_path"); path != "" {
		database += " connect_query='SET search_path TO " + path + "'"
	}
	return "[databases]\n* = " + database + "\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = " + port +
		"\nauth_type = any\nunix_socket_dir =\n" + strings.Join(settings, "\n") + "\n"
}

func answersAt(host string) bool {
	conn, err := net.DialTimeout("tcp", host, 2*time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}
