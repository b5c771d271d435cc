package connect

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")) // of sarama
}

// A URL becomes what its driver takes.
func TestURLs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a b%.db")
	testkit.NoError(t, os.WriteFile(file, nil, 0o600))
	for address, want := range map[string]string{
		"postgres://u:p@h:1/d":                                  "pgx postgres://u:p@h:1/d?default_query_exec_mode=exec",
		"postgres://h/d?sslmode=disable":                        "pgx postgres://h/d?sslmode=disable&default_query_exec_mode=exec",
		"postgres://h/d?default_query_exec_mode=cache_describe": "pgx postgres://h/d?default_query_exec_mode=cache_describe",
		"mysql://u:p%40%2F@h/d":                                 "mysql u:p@/@tcp(h:3306)/d",
		"mariadb://u@h:7/d?tls=true":                            "mysql u@tcp(h:7)/d?tls=true",
		"sqlite://" + pathOf(file):                              "sqlite file:" + pathOf(file) + "?_pragma=busy_timeout(10000)&mode=rw",
		"sqlite:" + pathOf(file) + "?mode=ro":                   "sqlite file:" + pathOf(file) + "?_pragma=busy_timeout(10000)&mode=rw&mode=ro",
	} {
		driver, dsn, err := dsnOf(address)
		got := driver + " " + dsn
		testkit.Check(t, err == nil && got == want, "%s: %s, %v; want %s", address, got, err, want)
	}
	for address, says := range map[string]string{
		"": "SPILLWAY_DB", "nothing": "no URL", "redis://h": `scheme "redis"`, "mysql://h": "no database name", "mysql://u:p%zz@h/d": "%40",
		"sqlite:///nowhere/x": "cannot be opened", "sqlite://" + t.TempDir(): "folder", "mysql://u:secret@h/d?timeout=x": "duration",
	} {
		_, _, err := dsnOf(address)
		testkit.Check(t, err != nil && strings.Contains(err.Error(), says) && !strings.Contains(err.Error(), "secret"),
			"%s: %v, want %q", address, err, says)
	}
}

func pathOf(file string) string { return strings.NewReplacer("%", "%25", " ", "%20").Replace(file) }

// An error, and what is shown of an address, never has the password.
func TestPasswordsAreNotShown(t *testing.T) {
	for _, address := range []string{
		"postgres://u:hunter%40two@127.0.0.1:1/d?connect_timeout=1", "mysql://u:hunter%40two@127.0.0.1:1/d", "mysql://u:hunter%40two@h/d?x=%zz", "postgres://u:hunter%40two@h:x/d",
	} {
		_, err := Database(t.Context(), address)
		testkit.Check(t, err != nil && !strings.Contains(err.Error(), "hunter"), "%s: %v", address, err)
		testkit.Check(t, !strings.Contains(Shown(address), "hunter"), "shown as %s", Shown(address))
	}
	for _, address := range []string{"kafka://u:hunter@127.0.0.1:1", "amqp://u:hunter@127.0.0.1:1/", "redis://u:hunter@h", "kafka://u:hunter@"} {
		_, err := Open(t.Context(), address, nil, nil)
		testkit.Check(t, err != nil && !strings.Contains(err.Error(), "hunter"), "%s: %v", address, err)
	}
	shown := Shown("kafka://u:hunter@a:1,b:2")
	testkit.Check(t, !strings.Contains(shown, "hunter") && strings.Contains(shown, "a:1,b:2"), "shown as %s", shown)
}

// A part of a URL that is not understood is refused, before a password is sent.
func TestBrokerURLs(t *testing.T) {
	for address, says := range map[string]string{
		"": "SPILLWAY_BROKER", "kafka://h?tls=yes": "give true or false", "kafka://h?tsl=true": `"tsl"`, "kafka://h?sasl=plain": "no user", "kafka://u:p@h?sasl=gssapi": "scram-sha-512",
		"kafka://h?tls=false&ca=x": "leave the one", "kafka://h?cert=x": "both files", "kafka://h?ca=/nowhere/x": "ca: open", "kafka://u:%zz@h": "escape",
		"kafka://h?tls=true&tls=false": "once",
		"kafka://a,,b":                 "a host is missing", "kafka://h?%zz": "query", "pulsar://h": "scheme is unknown",
	} {
		_, err := Open(t.Context(), address, nil, nil)
		testkit.Check(t, err != nil && strings.Contains(err.Error(), says) && strings.Contains(err.Error(), "--broker"),
			"%s: %v, want %q", address, err, says)
	}
}

// Looking makes no table, and no upgrade: a table of another release is an error that says what to do.
func TestVersions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	db := testkit.Must(sql.Open("sqlite", "file:"+file))
	defer db.Close()
	testkit.Says(t, Require(t.Context(), db, "letters"), "not the database of a service")
	testkit.Must(letters.NewStore(t.Context(), db, letters.Config{}))
	testkit.NoError(t, Require(t.Context(), db, "letters"))
	for state, change := range map[string]string{
		"newer":   `INSERT INTO spillway_schema VALUES ('letters', 99, 0)`,
		"older":   `UPDATE spillway_schema SET version = -1 WHERE component = 'letters'`,
		"missing": `DELETE FROM spillway_schema WHERE component = 'letters'`,
	} {
		testkit.Must(db.Exec(change))
		testkit.Check(t, Require(t.Context(), db, "letters") != nil, "%s is accepted", state)
		testkit.Must(db.Exec(`DELETE FROM spillway_schema WHERE component = 'letters';
INSERT INTO spillway_schema VALUES ('letters', 1, 0)`))
	}
}

// A letter goes out over listeners with TLS and passwords or certificates. No refusal names a password.
func TestSecuredBrokers(t *testing.T) {
	password := url.QueryEscape(services.Password)
	k, r := services.Secured(t, "kafka"), services.Secured(t, "rabbitmq")
	kafkaWith := "kafka://spillway:" + password + "@" + k.Host + "?ca=" + k.CA
	certified := "kafka://" + k.Certified + "?ca=" + k.CA
	own := "&cert=" + k.Cert + "&key=" + k.Key
	rabbit := "?cacertfile=" + r.CA + "&certfile=" + r.Cert + "&keyfile=" + r.Key
	for name, address := range map[string]string{
		"kafka plain":          kafkaWith,
		"kafka scram-sha-256":  kafkaWith + "&sasl=scram-sha-256",
		"kafka scram-sha-512":  kafkaWith + "&tls=true&sasl=SCRAM-SHA-512",
		"kafka certificate":    certified + own,
		"rabbitmq password":    "amqps://spillway:spillway@" + r.Host + "/?cacertfile=" + r.CA,
		"rabbitmq certificate": "amqps://" + r.Host + "/" + rabbit + "&auth_mechanism=external",
		"rabbitmq nodes":       "amqps://" + r.Host + "," + r.Host + "/" + rabbit + "&auth_mechanism=external",
	} {
		t.Run(name, func(t *testing.T) { oneMessage(t, address) })
	}
	wrong := url.QueryEscape("hunter:two@")
	for name, address := range map[string]string{
		"kafka wrong password":       "kafka://spillway:" + wrong + "@" + k.Host + "?sasl=scram-sha-512&ca=" + k.CA,
		"kafka unknown authority":    "kafka://spillway:" + wrong + "@" + k.Host + "?tls=true",
		"kafka no certificate":       certified,
		"kafka no TLS":               "kafka://spillway:" + wrong + "@" + k.Host,
		"rabbitmq wrong password":    "amqps://spillway:" + wrong + "@" + r.Host + "/?cacertfile=" + r.CA,
		"rabbitmq unknown authority": "amqps://spillway:" + wrong + "@" + r.Host + "/",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := refusedBy(t, address)
			testkit.Require(t, err != nil && !strings.Contains(err.Error(), "hunter"), "%v", err)
			t.Log(err)
		})
	}
}

func refusedBy(t *testing.T, address string) error {
	t.Helper()
	broker, err := Open(t.Context(), address, nil, watermill.NopLogger{})
	if err != nil {
		return err
	}
	defer broker.Close()
	return broker.Publish("secured-refused", message.NewMessage("1", nil))
}

func oneMessage(t *testing.T, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	broker := testkit.Must(Open(ctx, address, nil, watermill.NopLogger{}))
	defer broker.Close()
	topic := fmt.Sprintf("secured-%d.dlq", time.Now().UnixNano())
	sub := testkit.Must(broker.Subscriber("secured"))
	defer sub.Close()
	testkit.NoError(t, broker.Publisher.(interface{ InitializeTopics(...string) error }).InitializeTopics(topic))
	testkit.NoError(t, broker.Publish(topic, message.NewMessage("1", []byte("secret"))))
	messages := testkit.Must(sub.Subscribe(ctx, topic))
	select {
	case msg := <-messages:
		testkit.Check(t, string(msg.Payload) == "secret", "%q", msg.Payload)
		msg.Ack()
	case <-ctx.Done():
		t.Fatal("the message does not arrive")
	}
}

// The URL of a database may ask for TLS, with an authority and a certificate of its own.
func TestSecuredDatabases(t *testing.T) {
	p, m := services.Secured(t, "postgres"), services.Secured(t, "mariadb")
	const version = "SELECT VARIABLE_VALUE FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME = 'SSL_VERSION'"
	certified := "mysql://certified:" + url.QueryEscape(services.Password) + "@" + m.Host + "/spillway?"
	for _, c := range []struct{ name, address, session, refused string }{
		{"postgres", "postgres://spillway:spillway@" + p.Host + "/spillway?sslmode=verify-full&sslrootcert=" + p.CA,
			"SELECT CAST(ssl AS text) FROM pg_stat_ssl WHERE pid = pg_backend_pid()", ""},
		{"postgres, unknown authority", "postgres://spillway:spillway@" + p.Host + "/spillway?sslmode=verify-full", "", "certificate"},
		{"mariadb", "mysql://spillway:spillway@" + m.Host + "/spillway?ca=" + m.CA, version, ""},
		{"mariadb, certificate", certified + "ca=" + m.CA + "&cert=" + m.Cert + "&key=" + m.Key, version, ""},
		{"mariadb, no certificate", certified + "ca=" + m.CA, "", "Access denied"},
		{"mariadb, unknown authority", "mysql://spillway:spillway@" + m.Host + "/spillway?tls=true", "", "certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			db, err := Database(t.Context(), c.address)
			if c.refused != "" {
				testkit.Says(t, err, c.refused)
				return
			}
			testkit.NoError(t, err)
			defer db.Close()
			var said string
			testkit.NoError(t, db.QueryRow(c.session).Scan(&said))
			testkit.Check(t, said == "true" || strings.HasPrefix(said, "TLS"), "the session has no TLS: %q", said)
		})
	}
}
