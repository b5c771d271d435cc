package connect

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// A letter goes out, and what waits is seen, over listeners with TLS and passwords or certificates. What a listener
// refuses is an error that names no password.
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
	certified := "mysql://certified:" + url.QueryEscape(services.Password) + "@" + m.Host + "/spillway?"
	for _, c := range []struct{ name, address, session, refused string }{
		{"postgres", "postgres://spillway:spillway@" + p.Host + "/spillway?sslmode=verify-full&sslrootcert=" + p.CA,
			"SELECT CAST(ssl AS text) FROM pg_stat_ssl WHERE pid = pg_backend_pid()", ""},
		{"postgres, unknown authority", "postgres://spillway:spillway@" + p.Host + "/spillway?sslmode=verify-full", "", "certificate"},
		{"mariadb", "mysql://spillway:spillway@" + m.Host + "/spillway?ca=" + m.CA, "SHOW SESSION STATUS LIKE 'Ssl_version'", ""},
		{"mariadb, certificate", certified + "ca=" + m.CA + "&cert=" + m.Cert + "&key=" + m.Key, "SHOW SESSION STATUS LIKE 'Ssl_version'", ""},
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
			testkit.NoError(t, spoken(t.Context(), db, c.session))
		})
	}
}

// spoken returns an error unless the session has TLS.
func spoken(ctx context.Context, db *sql.DB, query string) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values := make([]any, len(columns))
	last := new(sql.NullString)
	for i := range values {
		values[i] = new(sql.NullString)
	}
	values[len(values)-1] = last
	for rows.Next() {
		if err := rows.Scan(values...); err != nil {
			return err
		}
	}
	if last.String != "true" && !strings.HasPrefix(last.String, "TLS") {
		return fmt.Errorf("the session has no TLS: %q", last.String)
	}
	return rows.Err()
}
