package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/creack/pty"
	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

var (
	update = flag.Bool("update", false, "write the golden files")
	binary string
)

func TestMain(m *testing.M) {
	flag.Parse()
	folder, err := os.MkdirTemp("", "redrive")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(folder, "redrive")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s", out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	if err := goleak.Find(goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// shop is a database with dead letters, and the environment in which the command finds it.
type shop struct {
	t     *testing.T
	db    *sql.DB
	store *letters.Store
	url   string
	env   []string
	api   bool // the command works over an API
}

// urlOf is the address of a database as the command takes it.
func urlOf(t *testing.T, d databases.Database, address string) string {
	t.Helper()
	switch d.Name {
	case databases.SQLite.Name:
		file, _, _ := strings.Cut(strings.TrimPrefix(address, "file:"), "?")
		return "sqlite://" + file
	case databases.MariaDB.Name:
		config := testkit.Must(mysql.ParseDSN(address))
		return (&url.URL{Scheme: "mysql", User: url.UserPassword(config.User, config.Passwd), Host: config.Addr, Path: "/" + config.DBName}).String()
	}
	return address
}

// newShop is a shop on SQLite.
func newShop(t *testing.T, messages ...*message.Message) *shop {
	t.Helper()
	return shopOn(t, databases.SQLite, databases.SQLite.Create(t), messages...)
}

func shopOn(t *testing.T, d databases.Database, address string, messages ...*message.Message) *shop {
	t.Helper()
	db := d.Open(t, address)
	s := &shop{t: t, db: db, store: storeOn(t, db), url: urlOf(t, d, address)}
	s.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "SPILLWAY_DB=" + s.url, "SPILLWAY_SERVICE=shop", "SPILLWAY_BY=ann", "TERM=xterm",
	}
	if len(messages) > 0 {
		testkit.NoError(t, s.store.Publish("orders.dlq", messages...))
	}
	return s
}

// open is how a broker of tables gets the database.
func (s *shop) open(context.Context) (*sql.DB, error) { return s.db, nil }

func storeOn(t *testing.T, db *sql.DB) *letters.Store {
	t.Helper()
	return testkit.Must(letters.NewStore(t.Context(), db, letters.Config{Service: "shop"}))
}

var failedAt = time.Date(2020, 2, 29, 12, 0, 0, 123456000, time.UTC)

// letter is a dead letter of topic orders and handler billing, unless change says otherwise.
func letter(id, payload string, change ...func(*poison.Letter)) *message.Message {
	msg := message.NewMessage(id, []byte(payload))
	msg.Metadata.Set("tenant", "blue")
	l := poison.Letter{
		Original: msg,
		Origin:   poison.Origin{Topic: "orders", Handler: "billing", MessageID: id, Partition: "3", Offset: "1042"},
		Failure: poison.Failure{
			Class: classify.ClassPermanent, Reason: "no_such_customer", Description: "customer " + id + " is unknown",
			Type: "*shop.Error", StackHash: "abc", Attempts: 5, FirstFailedAt: failedAt, LastFailedAt: failedAt.Add(time.Second),
			History: []classify.Attempt{{At: failedAt, Class: classify.ClassPermanent, Error: "customer is unknown"}},
		},
	}
	for _, f := range change {
		f(&l)
	}
	return l.Encode()
}

// incident are letters of three causes, one of them written by an enemy.
func incident() []*message.Message {
	all := []*message.Message{letter("id-0", "{}"), letter("id-1", "{}"), letter("id-2", "{}")}
	all = append(all, letter("late", `{"amount":90071992547409931.10,"card":"4111","name":"Zoë 世界"}`, func(l *poison.Letter) {
		l.Origin.Handler, l.Failure.Class, l.Failure.Reason = "shipping", classify.ClassTransient, "timeout"
		l.Failure.Description = "warehouse does not answer: context deadline exceeded while awaiting headers of the response"
		l.Failure.LastFailedAt = failedAt.Add(3600e9)
	}))
	return append(all, letter("\x1b[2J\x1b]0;owned\x07", "\x00\xff\xfe\x1b[31m", func(l *poison.Letter) {
		l.Origin.Handler = "=cmd|' /C calc'!A0"
		l.Failure.Reason = "\u202eevil\u2066"
		l.Failure.Description = "=HYPERLINK(\"http://x\")\x1b[1A\x9b2K\r\nsecond\u200b line\u0085"
		l.Original.Metadata.Set("\x1bkey", "\x1b[5m blink \xff")
	}))
}

// result is what a run of the command printed.
type result struct {
	out, err string
	code     int
}

// wants fails the test unless a run had the exit code and said the texts.
func (r result) wants(t testing.TB, code int, texts ...string) {
	t.Helper()
	for _, text := range append(texts, "") {
		testkit.Check(t, r.code == code && strings.Contains(r.out+r.err, text),
			"exit %d, want %d and %q: %s %s", r.code, code, text, r.out, r.err)
	}
}

// pipe runs the command with its output in a pipe.
func (s *shop) pipe(args ...string) result { return s.input("", args...) }

func (s *shop) input(in string, args ...string) result {
	s.t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env, cmd.Stdin = s.env, strings.NewReader(in)
	cmd.Dir = s.t.TempDir()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	code := s.code(cmd.Run())
	return result{out.String(), errs.String(), code}
}

func (s *shop) code(err error) int {
	s.t.Helper()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	testkit.NoError(s.t, err)
	return 0
}

// step is a run of the command, with its exit code and what it says.
type step struct {
	code int
	says string
	args []string
}

func (s *shop) steps(all []step) {
	s.t.Helper()
	for _, step := range all {
		got := s.pipe(step.args...)
		testkit.Check(s.t, got.code == step.code && strings.Contains(got.out+got.err, step.says),
			"%q: exit %d, want %d and %q: %s %s", step.args, got.code, step.code, step.says, got.out, got.err)
	}
}

// terminal runs the command on a terminal of so many columns, where a person types in.
func (s *shop) terminal(columns int, in string, args ...string) result {
	s.t.Helper()
	cmd := exec.CommandContext(context.Background(), binary, args...)
	cmd.Env, cmd.Dir = s.env, s.t.TempDir()
	screen := testkit.Must(pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: uint16(columns)}))
	defer screen.Close()
	if in != "" {
		testkit.Must(io.WriteString(screen, in))
	}
	out, err := io.ReadAll(screen)
	if err != nil && !errors.Is(err, syscall.EIO) { // Linux ends a terminal so
		s.t.Fatal(err)
	}
	return result{out: strings.ReplaceAll(string(out), "\r\n", "\n"), code: s.code(cmd.Wait())}
}

var today = regexp.MustCompile(`(20\d\d-)?\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`)

// lastMinute is how many letters came in the last full minute: a minute may end while a test runs.
var lastMinute = regexp.MustCompile(`(?m)("last_minute":|^[0-9a-f]{32}\t\d+\t|^[0-9a-f]{8} +\d+ +)\d+\b`)

// golden compares a text with its file. Times of today are no part of it, and neither are arrivals per minute.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = today.ReplaceAllStringFunc(got, func(s string) string {
		if strings.Contains(s, "02-29 ") || strings.Contains(s, "02-29T") {
			return s
		}
		return "NOW"
	})
	got = lastMinute.ReplaceAllString(got, "${1}0")
	path := filepath.Join("testdata", name)
	api := strings.Contains(t.Name(), "/api")
	if *update && !api {
		testkit.NoError(t, os.MkdirAll("testdata", 0o755))
		testkit.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want := string(testkit.Must(os.ReadFile(path)))
	if api { // bytes that are no text do not come through JSON
		noText := strings.NewReplacer(`\xff`, "\ufffd", `\ufffd`, "\ufffd")
		got, want = noText.Replace(got), noText.Replace(want)
	}
	testkit.Check(t, got == want,
		"%s is not what it was (go test ./cmd/redrive -update writes it):\n%s\nwant\n%s", path, got, want)
}
