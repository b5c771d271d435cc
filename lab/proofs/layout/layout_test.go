// Package layout_test keeps every package in its place.
package layout_test

import (
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

const module = "github.com/watermill-spillway/spillway"

// floors says who may know whom: a package imports only packages of its own floor or below. A name that ends with a
// slash is that of each package below, and the longest name counts. What has no name here has not found its place yet.
var floors = map[string]int{
	// the ground: what every room stands on
	"classify": 0, "naming": 0, "observe": 0, "privacy": 0, "seal": 0, "internal/": 0,
	"idempotency/internal/": 0, "observe/internal/": 0, "observe/notify/internal/": 0, "middleware/internal/": 0,
	"redrive/internal/jsonedit": 0,
	// rooms of one job each, and the adapters
	"middleware/stages/delay": 1, "idempotency": 1, "idempotency/pgxstore": 1, "middleware/breaker": 1, "middleware/breaker/circuit": 0, "middleware/breaker/sqlshare": 1, "middleware/crashlimit": 1, "middleware/crashlimit/sqlmarks": 1,
	"poison": 1, "pubsub/": 1, "internal/sqlstore/delayed": 1, "internal/inside": 1, "internal/chain/traced/attempt": 1,
	// middlewares that use letters, and the store of dead letters
	"middleware": 2, "middleware/outputs": 2, "middleware/stages": 2, "redrive/letters": 2, "redrive/internal/engine": 2,
	// dead letters on their way back, and the console, in a service's own server
	"redrive": 3, "redrive/campaigns": 3, "redrive/console": 3, "redrive/console/internal/fleet": 3, "redrive/erasure": 3,
	"internal/operate": 3, "internal/operate/": 3,
	// the front door
	"": 4,
	// what is seen from outside, kits of tests, and the parts of examples
	"observe/": 5, "observe/internal/series": 5, "conformance": 5, "internal/testing/": 5, "internal/sqlstore/database/mysql/mysqltest": 5,
	"internal/sqlstore/database/postgres/postgrestest": 5, "redrive/internal/apitest": 5, "examples/internal/": 5,
	"examples/nats/jetstream": 5, "examples/redis/streams": 5, "examples/decode/": 5, "cmd/redrive/internal/": 5,
	"lab/internal/backlog": 5, "lab/internal/harness": 5,
	// programs
	"cmd/redrive": 6, "cmd/redrive/internal/command": 6, "conformance/internal/report": 6, "examples/": 6, "lab/": 6,
}

// floorOf returns the floor of a package, and whether it has one.
func floorOf(name string) (floor int, known bool) {
	if floor, known = floors[name]; known {
		return floor, true
	}
	for above := name; above != "."; {
		above = path.Dir(above)
		if floor, known = floors[above+"/"]; known {
			return floor, true
		}
	}
	return 0, false
}

// mayKnow are the packages outside of the standard library that the library itself may import. Database drivers and
// broker clients are not among them: they belong in leaves, so that users of one adapter never compile another.
var mayKnow = []string{
	"github.com/ThreeDotsLabs/watermill", "github.com/ThreeDotsLabs/watermill/message",
	"github.com/cenkalti/backoff/v4", "github.com/evanphx/json-patch/v5",
}

// leaves are the packages that exist for one client each, and what they may import of it beside mayKnow. No other
// package of the library imports a leaf.
var leaves = map[string][]string{
	"pubsub/wmkafka": {"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka", "github.com/IBM/sarama"},
	"pubsub/wmamqp":  {"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp", "github.com/rabbitmq/amqp091-go"},
	"pubsub/wmsql":   {"github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"},
	"observe/prom":   {"github.com/prometheus/client_golang/prometheus"},
	"observe/telemetry": {
		"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/codes", "go.opentelemetry.io/otel/metric",
		"go.opentelemetry.io/otel/metric/noop", "go.opentelemetry.io/otel/propagation", "go.opentelemetry.io/otel/semconv/v1.27.0",
		"go.opentelemetry.io/otel/trace",
	},
	"idempotency/pgxstore": {"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgconn", "github.com/jackc/pgx/v5/stdlib"},
}

// clients are compiled only for packages that import their leaf, and the library of the command line for the command.
var clients = []string{"github.com/spf13", "github.com/IBM/sarama", "github.com/rabbitmq/amqp091-go", "github.com/jackc/pgx", "github.com/go-sql-driver", "github.com/redis", "github.com/ThreeDotsLabs/watermill-redisstream", "github.com/nats-io", "github.com/ThreeDotsLabs/watermill-nats",
	"github.com/prometheus", "go.opentelemetry.io", "github.com/chromedp"}

// The rooms are kept by this test: nothing points up, and nothing drags in what it does not exist for.
func TestLayout(t *testing.T) {
	for name, imports := range listed(t, ".Imports") {
		floor, known := floorOf(name)
		if !known {
			t.Errorf("%s has no floor: give it its place in floors", name)
			continue
		}
		for _, imported := range imports {
			if own, ok := strings.CutPrefix(imported, module); ok {
				own = strings.TrimPrefix(own, "/")
				if below, _ := floorOf(own); below > floor {
					t.Errorf("%s (floor %d) imports %s (floor %d)", name, floor, imported, below)
				}
				if _, leaf := leaves[own]; leaf && floor <= 4 && !strings.HasPrefix(own, name+"/internal/") {
					t.Errorf("%s imports the leaf %s", name, imported)
				}
				continue
			}
			if outside := strings.Contains(strings.SplitN(imported, "/", 2)[0], "."); outside && (floor <= 4 || leaves[name] != nil) &&
				!slices.Contains(mayKnow, imported) && !slices.Contains(leaves[name], imported) {
				t.Errorf("%s imports %s", name, imported)
			}
		}
	}
}

// withoutLeaf are clients that have no package of ours. Only tests, examples and measures import them.
var withoutLeaf = []string{
	"github.com/redis", "github.com/ThreeDotsLabs/watermill-redisstream", "github.com/nats-io", "github.com/ThreeDotsLabs/watermill-nats",
}

// What compiles no client: packages that import no leaf. What has no leaf is compiled by tests, examples and measures
// alone, and a user of the suite compiles neither a metrics library nor a proxy with a server of its own.
func TestClientsAreCompiledForLeavesAlone(t *testing.T) {
	heavy := append([]string{"github.com/Shopify/toxiproxy", "github.com/rs/zerolog"}, clients...)
	without := map[string][]string{"conformance": heavy}
	for _, name := range strings.Fields("classify poison middleware middleware/crashlimit redrive redrive/letters " +
		"redrive/console idempotency delay") {
		without[name] = clients
	}
	without[""] = clients
	for name, imports := range listed(t, ".Deps") {
		refused := without[name]
		if refused == nil && !strings.HasPrefix(name, "examples/") && !strings.HasPrefix(name, "lab/") {
			refused = withoutLeaf
		}
		for _, imported := range imports {
			if slices.ContainsFunc(refused, func(client string) bool { return strings.HasPrefix(imported, client) }) {
				t.Errorf("%q compiles %s", name, imported)
			}
		}
	}
}

// listed is what each package imports.
func listed(t *testing.T, field string) map[string][]string {
	t.Helper()
	format := "{{.ImportPath}} {{join " + field + ` " "}}`
	out := testkit.Must(exec.Command("go", "list", "-f", format, module+"/...").Output())
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		all[strings.TrimPrefix(strings.TrimPrefix(fields[0], module), "/")] = fields[1:]
	}
	testkit.Require(t, len(all) > 50, "%d packages are listed", len(all))
	return all
}
