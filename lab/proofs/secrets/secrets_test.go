// Package secrets_test proves that no part of Spillway, nor the command, shows a secret that a message or an error has.
package secrets_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe/notify"
	"github.com/watermill-spillway/spillway/observe/prom"
	"github.com/watermill-spillway/spillway/observe/telemetry"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
)

// leak is an invented secret, and where a handler leaks it.
type leak struct {
	ID     string `json:"id"`
	Place  string `json:"place"`
	Secret string `json:"secret"`
	Text   string `json:"text"` // with a %s
}

func leaks(t *testing.T) (all []leak) {
	t.Helper()
	text := testkit.Must(os.ReadFile("testdata/secrets.jsonl"))
	for line := range bytes.Lines(text) {
		var l leak
		testkit.NoError(t, json.Unmarshal(line, &l))
		all = append(all, l)
	}
	testkit.Require(t, len(all) >= 50, "%d secrets", len(all))
	return all
}

func (l leak) said() string {
	if !strings.Contains(l.Text, "%") {
		return l.Text
	}
	return fmt.Sprintf(l.Text, l.Secret)
}

// message has the secret in its payload and metadata, whatever the place.
func (l leak) message() *message.Message {
	payload, _ := json.Marshal(map[string]any{
		"users": []any{map[string]any{"name": l.Secret, "id": 1}}, "password": l.Secret, "note": "dial amqp://a:" + url.QueryEscape(l.Secret) + "@mq/", "n": 1,
	})
	msg := message.NewMessage(l.ID, payload)
	msg.Metadata = message.Metadata{"customer": l.Secret, "Authorization": "Bearer " + l.Secret, "tenant": "blue", "callback": "https://u:" + url.QueryEscape(l.Secret) + "@h/"}
	return msg
}

// traced is an error with frames, as those of github.com/pkg/errors.
type traced struct{ text string }

func (e traced) Error() string { return e.text + "\nmain.pay\n\t/src/pay.go:7 " + e.text }

// fail leaks the secret as a handler would.
func (l leak) fail(ctx context.Context) error {
	parts := strings.Split(l.said(), "|")
	switch l.Place {
	case "error":
		return errors.New(l.said())
	case "wrapped":
		err := errors.New(parts[len(parts)-1])
		for i := len(parts) - 2; i >= 0; i-- {
			err = fmt.Errorf("%s%w", parts[i], err)
		}
		return err
	case "joined":
		return errors.Join(errors.New(parts[0]), errors.New(parts[1]))
	case "escaped":
		return fmt.Errorf("cannot read body %q", l.said())
	case "percent":
		return fmt.Errorf("get https://api.example/x?q=%s: 502", url.QueryEscape(l.said()))
	case "base64":
		return fmt.Errorf("bad config %s", base64.StdEncoding.EncodeToString([]byte(l.said())))
	case "cut": // the history of attempts keeps 256 bytes with the mark of the cut, which falls behind the first ten of the secret
		before := strings.Index(l.said(), l.Secret)
		return errors.New(strings.Repeat("x", 219-before) + " " + l.said() + " was refused" + strings.Repeat(" y", 40))
	case "panic":
		panic(l.said())
	case "panicvalue":
		panic(struct{ User, Password string }{"bob", l.Secret})
	case "stack":
		return traced{l.said()}
	case "reason":
		return classify.Permanent(errors.New("refused"), classify.Reason(l.said()))
	case "description":
		return classify.Permanent(errors.New("refused"), classify.Description(l.said()))
	}
	address, err := l.connect(ctx)
	return fmt.Errorf("connect to %s: %w", address, err)
}

// connect asks a server, or a port where there is none, with a wrong password. It returns the address and what the
// driver says.
func (l leak) connect(ctx context.Context) (address string, err error) {
	at := func(name, none string) string {
		found, err := services.Lookup(name)
		if err != nil {
			return none
		}
		if u, err := url.Parse(found); err == nil && u.Host != "" {
			return u.Host
		}
		return found
	}
	switch l.Place {
	case "postgres":
		address = "postgres://ops:" + l.Secret + "@" + at("postgres", "127.0.0.1:1") + "/shop?sslmode=disable"
		conn, err := pgx.Connect(ctx, address)
		if err == nil {
			_ = conn.Close(ctx)
		}
		return address, err
	case "mysql":
		_, host, _ := strings.Cut(at("mariadb", "x:x@tcp(127.0.0.1:1)/shop"), "@")
		address = "ops:" + l.Secret + "@" + host
		db, err := sql.Open("mysql", address)
		if err != nil {
			return address, err
		}
		defer db.Close()
		return address, db.PingContext(ctx)
	case "amqp":
		address = "amqp://ops:" + l.Secret + "@" + at("rabbitmq", "127.0.0.1:1") + "/"
		conn, err := amqp.Dial(address)
		if err == nil {
			_ = conn.Close()
		}
		return address, err
	case "redis":
		address = "redis://ops:" + l.Secret + "@" + at("redis", "127.0.0.1:1") + "/0"
		options, err := redis.ParseURL(address)
		if err != nil {
			return address, err
		}
		options.MaxRetries = -1
		client := redis.NewClient(options)
		defer client.Close()
		return address, client.Ping(ctx).Err()
	case "nats":
		address = "nats://ops:" + l.Secret + "@127.0.0.1:1"
		_, err := nats.Connect(address)
		return address, err
	case "kafka":
		address = "kafka://ops:" + l.Secret + "@127.0.0.1:1"
		config := sarama.NewConfig()
		config.Metadata.Retry.Max = 0
		_, err := sarama.NewClient([]string{address}, config)
		return address, err
	}
	return "", fmt.Errorf("no place %q", l.Place)
}

// witness keeps what people and programs are shown.
type witness struct {
	mu   sync.Mutex
	seen map[string]string // by where it was shown
}

func (w *witness) saw(where string, what ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil {
		w.seen = map[string]string{}
	}
	w.seen[where] += fmt.Sprintf("%+v\n", what)
}

// readable reports each secret that can be read, also encoded, or its first half.
func (w *witness) readable(t *testing.T, all []leak) {
	t.Helper()
	for where, text := range w.seen {
		testkit.Check(t, len(text) >= 100, "%s has but %q: what it shows is not captured", where, text)
		for _, l := range all {
			for _, form := range []string{l.Secret, url.QueryEscape(l.Secret), l.Secret[:8], base64.StdEncoding.EncodeToString([]byte("password=" + l.Secret))[:16]} {
				if at := strings.Index(text, form); at >= 0 {
					t.Errorf("%s, %s in %s: readable: …%s…", l.ID, l.Place, where, text[max(0, at-80):min(len(text), at+60)])
					break
				}
			}
		}
	}
}

// Feature D14: of 50 secrets, in payloads, metadata, errors, panics, stacks, drivers' errors and URLs, none is readable
// in letters' texts, logs, metrics, spans, notices, hooks or the terminal. With Config.Seal none is readable in the
// database either. Promise P2: the same letters are redriven byte for byte.
func TestCorpusOfSecrets(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "redrive")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/watermill-spillway/spillway/cmd/redrive").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sealer := testkit.Must(seal.New(testkit.Must(seal.ParseKeyring(testkit.Keyring("k1")))))
	t.Run("sqlite", func(t *testing.T) { corpus(t, databases.SQLite, nil, binary) })
	t.Run("sqlite, sealed", func(t *testing.T) { corpus(t, databases.SQLite, sealer, "") })
	t.Run("postgres, sealed", func(t *testing.T) { corpus(t, databases.Postgres, sealer, binary) })
}

func corpus(t *testing.T, d databases.Database, sealer *seal.Sealer, binary string) {
	address, all, seen := d.Create(t), leaks(t), &witness{}
	redactor := testkit.Must(privacy.New(privacy.Rules{
		Metadata: []string{"customer"}, Patterns: []string{`customer "([^"]+)"`}, Payload: []string{"$.users[*].name"},
	}))
	log, spans, registry := &testkit.Log{}, tracetest.NewInMemoryExporter(), prometheus.NewRegistry()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	defer func() { _ = provider.Shutdown(context.Background()) }()
	config := spillway.Config{
		DB: d.Open(t, address), Service: "shop", Privacy: redactor, Logger: log, Seal: sealer,
		Retry: middleware.RetryConfig{Attempts: 2, Backoff: middleware.Backoff{Initial: time.Millisecond}},
	}
	config.Retry.Hooks.OnAttempt = func(_ context.Context, a middleware.Attempt) { seen.saw("hook", a.Err, a.Verdict) }
	config.Queue.Hooks.OnDeadLetter = func(_ context.Context, l poison.Letter) { seen.saw("hook", l.Failure) }
	metrics := testkit.Must(prom.New(prom.Config{Registerer: registry}))
	testkit.NoError(t, metrics.Observe(&config))
	spanned := testkit.Must(
		telemetry.New(telemetry.Config{TracerProvider: provider, MeterProvider: noop.NewMeterProvider()}))
	testkit.NoError(t, spanned.Observe(&config))
	hear := func(_ context.Context, n notify.Notice) error {
		text, err := json.Marshal(n)
		seen.saw("notice", string(text))
		return err
	}
	var notifiers []*notify.Notifier
	tell := map[string]func(context.Context, poison.Letter){}
	for some := range slices.Chunk(all, 10) { // a Notifier tells ten causes a minute
		notifier := testkit.Must(notify.New(notify.Config{Sinks: []notify.Sink{hear}}))
		own := config
		own.Service, own.Queue.Hooks = fmt.Sprint("shop", len(notifiers)), poison.Hooks{}
		testkit.NoError(t, notifier.Observe(&own))
		notifiers = append(notifiers, notifier)
		for _, l := range some {
			tell[l.ID] = own.Queue.Hooks.OnDeadLetter
		}
	}
	theirs := config.Queue.Hooks.OnDeadLetter
	config.Queue.Hooks.OnDeadLetter = func(ctx context.Context, l poison.Letter) {
		tell[l.Original.UUID](ctx, l)
		theirs(ctx, l)
	}
	dlc := testkit.Must(spillway.New(t.Context(), config))
	live := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
	defer live.Close()
	byID := map[string]leak{}
	for _, l := range all {
		byID[l.ID] = l
	}
	stop := testkit.RunRouter(t, log, func(router *message.Router) {
		dlc.Attach(router)
		for _, notifier := range notifiers {
			testkit.NoError(t, notifier.Watch(t.Context(), dlc))
			router.AddPlugin(notifier.Plugin)
		}
		router.AddConsumerHandler("billing", "orders", live, func(msg *message.Message) error {
			return byID[msg.UUID].fail(msg.Context())
		})
	})
	for _, l := range all {
		testkit.NoError(t, live.Publish("orders", l.message()))
	}
	store := dlc.Letters()
	testkit.Eventually(t, "all are dead-lettered", func() bool {
		waiting, err := store.List(t.Context(), letters.Filter{Limit: 1000})
		return err == nil && len(waiting) == len(all)
	})
	testkit.Eventually(t, "a notice is sent", func() bool { seen.mu.Lock(); defer seen.mu.Unlock(); return seen.seen["notice"] != "" })
	stop()
	waiting := testkit.Must(store.List(t.Context(), letters.Filter{Limit: 1000}))
	for _, l := range waiting {
		encoded := l.Encode()
		for key := range l.Original.Metadata { // kept as they are, to be redriven
			delete(encoded.Metadata, key)
		}
		seen.saw("letter", l.Failure, encoded.Metadata)
	}
	for _, level := range []watermill.LogLevel{watermill.ErrorLogLevel, watermill.InfoLogLevel, watermill.DebugLogLevel, watermill.TraceLogLevel} {
		for _, line := range log.Lines(level, "") {
			seen.saw("log", line)
		}
	}
	families := testkit.Must(registry.Gather())
	seen.saw("metrics", families)
	seen.saw("spans", spans.GetSpans())
	if binary != "" {
		onTerminal(t, d, address, binary, seen, waiting, sealer != nil)
	}
	if sealer != nil {
		seen.saw("database", atRest(t, d, config.DB))
	}
	seen.readable(t, all)
	redriven(t, store, all)
}

// onTerminal shows all letters with the command, as people and programs see them.
func onTerminal(t *testing.T, d databases.Database, address, binary string, seen *witness, waiting []letters.Letter,
	sealed bool) {
	t.Helper()
	folder := t.TempDir()
	if d.Name == databases.SQLite.Name {
		file, _, _ := strings.Cut(strings.TrimPrefix(address, "file:"), "?")
		address = "sqlite://" + file
	}
	rules := filepath.Join(folder, "rules.json")
	if err := os.WriteFile(rules, []byte(`{"metadata":["customer"],"patterns":["customer \"([^\"]+)\""],"payload":["$.users[*].name"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := [][]string{{"list"}, {"list", "--json"}, {"causes"}, {"causes", "--json"}, {"audit", "--json"}, {"redrive", "--all", "--dry-run"}}
	if sealed { // each letter is a process
		waiting = waiting[:8]
	}
	for i, l := range waiting {
		line := []string{"show", fmt.Sprint(l.Seq), "--limit", "0"}
		if i%2 == 0 {
			line = append(line, "--json")
		}
		lines = append(lines, line)
	}
	for _, line := range lines {
		cmd := exec.CommandContext(t.Context(), binary, line...)
		cmd.Env = []string{"HOME=" + folder, "SPILLWAY_DB=" + address, "SPILLWAY_SERVICE=shop", "SPILLWAY_BY=ann", "SPILLWAY_PRIVACY=" + rules}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		testkit.Require(t, err == nil || errors.As(err, &exit), "%v", err)
		seen.saw("terminal", line, string(out))
	}
}

// atRest returns what the database keeps: all rows of all tables, or the bytes of a file.
func atRest(t *testing.T, d databases.Database, db *sql.DB) string {
	t.Helper()
	var all strings.Builder
	query := func(query string, each func(string)) {
		rows := testkit.Must(db.Query(query))
		defer rows.Close()
		for rows.Next() {
			var text string
			testkit.NoError(t, rows.Scan(&text))
			each(text)
		}
		testkit.NoError(t, rows.Err())
	}
	if d.Name == databases.SQLite.Name {
		query(`SELECT file FROM pragma_database_list`, func(file string) {
			for _, name := range []string{file, file + "-wal"} {
				content, err := os.ReadFile(name)
				testkit.Require(t, err == nil || errors.Is(err, os.ErrNotExist), "%v", err)
				all.Write(content)
			}
		})
		return all.String()
	}
	var tables []string
	query(`SELECT tablename FROM pg_tables WHERE schemaname = current_schema()`, func(name string) { tables = append(tables, name) })
	for _, table := range tables {
		query(`SELECT encode(convert_to(t::text, 'UTF8'), 'escape') FROM "`+table+`" t`, func(row string) {
			all.WriteString(row + "\n")
			for _, hexed := range bytesOf.FindAllString(row, -1) { // a BYTEA in a row
				content, err := hex.DecodeString(hexed)
				if err == nil {
					all.Write(content)
				}
			}
		})
	}
	return all.String()
}

var bytesOf = regexp.MustCompile(`[0-9a-f]{16,}`)

// redriven drains all letters and compares each message with what was published.
func redriven(t *testing.T, store *letters.Store, all []leak) {
	t.Helper()
	back := &testkit.Kept{}
	report, err := redrive.Drain(t.Context(), store, back, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}})
	testkit.Require(t, err == nil && report.Redriven == len(all), "%+v: %v", report, err)
	byID := map[string]*message.Message{}
	for _, msg := range back.Taken() {
		byID[msg.UUID] = msg
	}
	for _, l := range all {
		want, got := l.message(), byID[l.ID]
		if got == nil || !bytes.Equal(got.Payload, want.Payload) {
			t.Errorf("%s has the payload %v", l.ID, got)
			continue
		}
		for key, value := range maps.All(want.Metadata) {
			testkit.Check(t, got.Metadata[key] == value, "%s: metadata %s is %q", l.ID, key, got.Metadata[key])
		}
	}
}
