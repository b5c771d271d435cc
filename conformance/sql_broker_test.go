package conformance_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/watermill-spillway/spillway/conformance"
	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// sqlServer is a kind of database server.
type sqlServer struct {
	databases.Database
	service      string // its name among the services
	quote        string
	schema       wsql.SchemaAdapter // of watermill-sql's own parts
	offsets      wsql.OffsetsAdapter
	refuse, take string // make a table read-only, and writable
	loses        bool
}

var postgres = sqlServer{
	Database: databases.Postgres, service: "postgres", quote: `"`, offsets: wsql.DefaultPostgreSQLOffsetsAdapter{},
	schema: wsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" }},
	refuse: `CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'read-only'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON TABLE_NAME EXECUTE FUNCTION refuse()`,
	take: `DROP TRIGGER refuse ON TABLE_NAME`,
}

var mariadb = sqlServer{
	Database: databases.MariaDB, service: "mariadb", quote: "`", offsets: wsql.DefaultMySQLOffsetsAdapter{},
	schema: wsql.DefaultMySQLSchema{GeneratePayloadType: func(string) string { return "LONGBLOB" }},
	refuse: `CREATE TRIGGER refuse_RANDOM BEFORE INSERT ON TABLE_NAME FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'read-only'`,
	take:   `DROP TRIGGER refuse_RANDOM`,
	loses:  true,
}

// at returns a DSN at another address, with a bound for its connections, and the address that it had.
func (s sqlServer) at(dsn, address string) (there, was string) {
	if s.Name == databases.MariaDB.Name {
		config := testkit.Must(mysql.ParseDSN(dsn))
		was, config.Addr, config.Timeout = config.Addr, address, 2*time.Second
		return config.FormatDSN(), was
	}
	u := testkit.Must(url.Parse(dsn))
	query := u.Query()
	query.Set("connect_timeout", "2")
	was, u.Host, u.RawQuery = u.Host, address, query.Encode()
	return u.String(), was
}

// tables are a server's, in a schema or database of the test's own.
type tables struct {
	sqlServer
	db           *sql.DB
	dsn, address string
}

// spaceVariable, with the server's name, gives its DSN to the processes that the suite starts.
const spaceVariable = "SPILLWAY_CONFORMANCE_SPACE_"

func (s sqlServer) start(t *testing.T) *tables {
	own := &tables{sqlServer: s, dsn: os.Getenv(spaceVariable + s.Name)}
	if own.dsn == "" {
		own.dsn = s.Create(t)
		testkit.NoError(t, os.Setenv(spaceVariable+s.Name, own.dsn))
		t.Cleanup(func() { _ = os.Unsetenv(spaceVariable + s.Name) })
	}
	_, own.address = s.at(own.dsn, "")
	own.db = s.open(t, own.dsn)
	return own
}

func (s sqlServer) open(t testing.TB, dsn string) *sql.DB {
	db := testkit.Must(sql.Open(child.Driver(s.Name), dsn))
	db.SetMaxIdleConns(10)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (s *tables) through(t testing.TB, address string) *sql.DB {
	dsn, _ := s.at(s.dsn, address)
	return s.open(t, dsn)
}

func (s *tables) table(topic string) string { return s.quote + "watermill_" + topic + s.quote }

func (s *tables) createTopic(t testing.TB, topic string) {
	sub := testkit.Must(wmsql.NewSubscriber(t.Context(), s.db, wmsql.SubscriberConfig{}))
	testkit.NoError(t, sub.SubscribeInitialize(topic))
}

func (s *tables) deleteTopic(t testing.TB, topic string) {
	_, err := s.db.Exec(`DROP TABLE IF EXISTS ` + s.table(topic))
	testkit.Check(t, err == nil, "%v", err)
}

func (s *tables) readOnly(t testing.TB, topic string) (writable func()) {
	s.createTopic(t, topic)
	named := strings.NewReplacer("TABLE_NAME", s.table(topic), "RANDOM", strings.ToLower(rand.Text()[:12]))
	say := func(statement string) { testkit.Must(s.db.Exec(named.Replace(statement))) }
	say(s.refuse)
	return func() { say(s.take) }
}

func (s *tables) restart(t testing.TB) {
	services.Restart(t, s.service)
	s.db.SetMaxIdleConns(0) // which are dead
	s.db.SetMaxIdleConns(10)
}

// unreadable writes a row that no subscriber can read: its metadata is no map.
type unreadable struct {
	message.Publisher
	s *tables
}

func (p unreadable) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		if string(msg.Payload) == conformance.Unreadable && !isLetter(msg) {
			if err := p.s.insert(topic, msg.UUID, msg.Payload, `[1]`); err != nil {
				return err
			}
		} else if err := p.Publisher.Publish(topic, msg); err != nil {
			return err
		}
	}
	return nil
}

func (s *tables) delays(t testing.TB) *delay.Store {
	return testkit.Must(delay.NewStore(context.Background(), s.db, "conformance"))
}

func isLetter(msg *message.Message) bool { return poison.Inside().IsLetter(msg) }

// InitializeTopics and the rest of ours is what the queue asks a publisher for.
func (p unreadable) InitializeTopics(topics ...string) error {
	return p.Publisher.(poison.Initializer).InitializeTopics(topics...)
}

func (p unreadable) ListWaiting(ctx context.Context, prefix string) (map[string]int, error) {
	return p.Publisher.(*wmsql.Publisher).ListWaiting(ctx, prefix)
}

// insert writes a row as no publisher would.
func (s *tables) insert(topic, id string, payload []byte, metadata any) error {
	columns, values := "uuid, payload, metadata", "?, ?, ?"
	if s.Name == databases.Postgres.Name {
		columns, values = columns+", transaction_id", "$1, $2, $3, pg_current_xact_id()"
	}
	_, err := s.db.Exec(`INSERT INTO `+s.table(topic)+` (`+columns+`) VALUES (`+values+`)`, id, payload, metadata)
	return err
}

// hostile are rows that stop watermill-sql's own subscriber for good, and some that do not.
func (s *tables) hostile() []conformance.Hostile {
	row := func(payload []byte, metadata any) func(testing.TB, string) {
		return func(t testing.TB, topic string) {
			testkit.NoError(t, s.insert(topic, "hostile", payload, metadata))
		}
	}
	unread := func(payload, metadata string) func(testing.TB, *message.Message) {
		return func(t testing.TB, msg *message.Message) {
			testkit.Check(t, string(msg.Payload) == payload && msg.Metadata.Get(wmsql.KeyMetadata) == metadata,
				"set aside with payload %q and metadata %v", msg.Payload, msg.Metadata)
		}
	}
	return []conformance.Hostile{
		{Name: "metadata with a number", Publish: row([]byte("v"), `{"n":1}`), Check: unread("v", `{"n":1}`)},
		{Name: "metadata that is an array", Publish: row([]byte("v"), `["a"]`), Check: unread("v", `["a"]`)},
		{Name: "metadata null", Publish: row([]byte("v"), `null`)},
		{Name: "no metadata", Publish: row([]byte("v"), nil)},
		{Name: "no payload", Publish: row(nil, `{"k":"v"}`)},
	}
}
