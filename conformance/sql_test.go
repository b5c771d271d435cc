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
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/results"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// The suite on tables of PostgreSQL and MariaDB, with our subscriber and with watermill-sql's own, on the same tables.
func TestSQL(t *testing.T) {
	t.Parallel()
	for _, server := range []sqlServer{postgres, mariadb} {
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			s := server.start(t)
			t.Run("ours", func(t *testing.T) { conformance.Run(t, s.target(server.Name)) })
			if server.loses && os.Getenv(results.Variable) == "" {
				return // PostgreSQL's column shows the subscriber, and most rows are pinned here
			}
			t.Run("stock", func(t *testing.T) { conformance.Run(t, s.stock(server.Name+"-stock")) })
		})
	}
}

// delayed is why a table of messages is no place to wait.
const delayed = "K19: messages wait in a delay store, not in tables as topics"

const oneAtATime = "K17: one member of a group consumes at a time, and the others wait for it"

func (s *tables) target(name string) conformance.Target {
	subscriber := func(t testing.TB, db *sql.DB, group string) *wmsql.Subscriber {
		return testkit.Must(wmsql.NewSubscriber(t.Context(), db, wmsql.SubscriberConfig{
			ConsumerGroup: group, PollInterval: 10 * time.Millisecond,
		}))
	}
	return conformance.Target{
		Name:       name,
		Publisher:  func(t testing.TB) message.Publisher { return s.publisher(t, s.db, 0) },
		Subscriber: func(t testing.TB, group string) message.Subscriber { return subscriber(t, s.db, group) },
		Ordered: func(t testing.TB, group string) (message.Publisher, message.Subscriber) {
			sub := testkit.Must(wmsql.NewSubscriber(t.Context(), s.db, wmsql.SubscriberConfig{ConsumerGroup: group, PollInterval: 10 * time.Millisecond,
				Key: func(msg *message.Message) string { return msg.Metadata.Get("tenant") }}))
			return s.publisher(t, s.db, 0), sub
		},
		Origin:  wmsql.Origin,
		Backlog: s.backlog,
		Database: func(t testing.TB) (*sql.DB, idempotency.Store) {
			keys := testkit.Must(wmsql.Join(t.Context(), subscriber(t, s.db, ""), "conformance"))
			return s.db, keys
		},
		Delays:      func(t testing.TB) *delay.Store { return s.delays(t) },
		Holds:       true,
		CreateTopic: s.createTopic,
		BadTopic:    "no topic of SQL!",
		Origins:     []string{poison.KeyOriginalOffset, poison.KeyOriginalGroup},
		Hostile:     s.hostile(),
		DeleteTopic: s.deleteTopic,
		ReadOnly:    s.readOnly,
		Restart:     s.restart,
		Service:     s.service,
		Address:     s.address,
		Through: func(t testing.TB, address string) message.Publisher {
			return s.publisher(t, s.through(t, address), 5*time.Second) // F5 answers after up to 0.4 s; a first publish takes six answers
		},
		SubscriberThrough: func(t testing.TB, group, address string) message.Subscriber {
			return subscriber(t, s.through(t, address), group)
		},
		Pins: map[string]string{"F6": oneAtATime, "F8": oneAtATime, "K17": oneAtATime,
			"H9/in topics": delayed},
	}
}

// stock is watermill-sql's own subscriber; letters and outputs are published by ours, in their own transactions.
func (s *tables) stock(name string) conformance.Target {
	target := s.target(name)
	target.Only = conformance.SecondColumn()
	target.Database, target.SubscriberThrough, target.Origins, target.Ordered = nil, nil, nil, nil
	target.Subscriber = func(t testing.TB, group string) message.Subscriber {
		return testkit.Must(wsql.NewSubscriber(s.db, wsql.SubscriberConfig{
			ConsumerGroup: group, SchemaAdapter: s.schema, OffsetsAdapter: s.offsets, InitializeSchema: true,
			PollInterval: 10 * time.Millisecond, ResendInterval: 20 * time.Millisecond, RetryInterval: 50 * time.Millisecond,
		}, nil))
	}
	target.BrokersOwn = []string{"x-sql-carried"}
	const columns = "K15: the column takes ids of 36 characters; what ours carries aside, only ours puts back"
	const text = "K9: the column takes text; what ours carries aside, only ours puts back"
	const still = "K14: stands still at a row that it cannot read"
	target.Pins = map[string]string{
		"D8": still, "H3/metadata with a number": still, "H3/metadata that is an array": still,
		"H10/id of 300 bytes": columns, "K15/id of 300 bytes": columns, "K15/id with NUL": columns, "K15/id not UTF-8": columns,
		"K9/binary values": text, "K9/values with NUL": text, "K9/values not UTF-8": text, "K9/keys not UTF-8": text,
		"K14": still, "K17": oneAtATime,
		"D9": "K18: commits half-done work at its deadline and at Close, so no write may join its transaction",
		"F6": oneAtATime, "F8": oneAtATime, "H9/in topics": delayed,
		"F7":   "K11: shares its pool of connections with its publishers",
		"R12b": "K18: has its effects elsewhere: F2 restarts the server of its messages",
		"V3":   "K13: closed within a batch, it forgets what was acked, and gives the letters of a drain again",
	}
	if s.loses {
		const locks = "K1: holds locks at the end of the table while a message comes again, and publishers wait for them"
		for _, id := range []string{"K1", "K5", "K6", "K7", "P1", "P3", "R5", "C5", "V1b", "H6", "H7", "R12g", "F1", "F2", "F3", "F4", "F5"} {
			target.Pins[id] = locks
		}
		target.Pins["R10/the broker's own"] = locks
		target.Pins["H5"] = "K1: loses messages of concurrent publishers, whose numbers become visible out of order"
	}
	return target
}

func (s *tables) publisher(t testing.TB, db *sql.DB, timeout time.Duration) message.Publisher {
	pub := testkit.Must(wmsql.NewPublisher(t.Context(), db, wmsql.PublisherConfig{Timeout: timeout}))
	return unreadable{pub, s}
}

func (s *tables) backlog(t testing.TB, group string) func(context.Context, string) (int, error) {
	sub := testkit.Must(wmsql.NewSubscriber(t.Context(), s.db, wmsql.SubscriberConfig{ConsumerGroup: group}))
	return func(ctx context.Context, topic string) (int, error) {
		if err := sub.SubscribeInitialize(topic); err != nil {
			return 0, err
		}
		return sub.Backlog(ctx, topic)
	}
}

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

func isLetter(msg *message.Message) bool { return inside.Poison.IsLetter(msg) }

// InitializeTopics and the rest of ours is what the queue asks a publisher for.
func (p unreadable) InitializeTopics(topics ...string) error {
	return p.Publisher.(poison.Initializer).InitializeTopics(topics...)
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
