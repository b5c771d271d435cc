package documents_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// packagesOfDocs are the packages that Go in Markdown may use, by the names that it uses for them.
var packagesOfDocs = map[string]string{
	"context": "context", "sql": "database/sql", "errors": "errors", "fmt": "fmt", "fs": "io/fs", "log": "log",
	"json": "encoding/json", "http": "net/http", "os": "os", "strings": "strings", "subtle": "crypto/subtle",
	"testing": "testing", "time": "time",
	"watermill":    "github.com/ThreeDotsLabs/watermill",
	"cqrs":         "github.com/ThreeDotsLabs/watermill/components/cqrs",
	"forwarder":    "github.com/ThreeDotsLabs/watermill/components/forwarder",
	"message":      "github.com/ThreeDotsLabs/watermill/message",
	"wm":           "github.com/ThreeDotsLabs/watermill/message/router/middleware",
	"gochannel":    "github.com/ThreeDotsLabs/watermill/pubsub/gochannel",
	"gobreaker":    "github.com/sony/gobreaker",
	"sarama":       "github.com/IBM/sarama",
	"redis":        "github.com/redis/go-redis/v9",
	"redisstream":  "github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream",
	"redisstreams": module + "/examples/redis/streams",
	"jetstream":    module + "/examples/nats/jetstream",
	"prometheus":   "github.com/prometheus/client_golang/prometheus",
	"promhttp":     "github.com/prometheus/client_golang/prometheus/promhttp",
	"sqlshare":     module + "/middleware/breaker/sqlshare",
	"spillway":     module,
}

func init() {
	for _, folder := range strings.Fields(`classify conformance idempotency idempotency/pgxstore middleware
		middleware/breaker middleware/breaker/circuit middleware/crashlimit middleware/stages middleware/stages/delay naming observe observe/notify observe/notify/webhook
		observe/prom observe/telemetry poison privacy pubsub/wmamqp pubsub/wmkafka pubsub/wmsql redrive redrive/campaigns
		redrive/console redrive/erasure redrive/letters seal`) {
		packagesOfDocs[path.Base(folder)] = module + "/" + folder
	}
}

// whatYouHaveInDocs is what Go in Markdown uses without declaring it.
const whatYouHaveInDocs = `
	var (
		ctx context.Context
		db *sql.DB
		router *message.Router
		sub message.Subscriber
		pub, live, dead, later message.Publisher
		handle message.HandlerFunc
		handleConsumer message.NoPublishHandlerFunc
		msg *message.Message
		err error
		brokers []string
		uri string
		dlc *spillway.Channel
		queue *poison.Queue
		store *letters.Store // of letters
		all *campaigns.Campaigns
		billing, audit *message.Handler
	)
`

var fence = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// Go in Markdown compiles. A fence holds declarations or statements. It may use the variables of whatYouHaveInDocs, and
// need not use those that it declares.
func TestGoInMarkdownCompiles(t *testing.T) {
	imports := exported()
	tree(t, ".md", func(path, text string) {
		for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
			line := 1 + strings.Count(text[:at[2]], "\n")
			for _, err := range compile(text[at[2]:at[3]], fmt.Sprintf("%s:%d", path, line), imports) {
				t.Error(err)
			}
		}
	})
}

// compile returns what is wrong with one fence, whose first line is at name.
func compile(code, name string, imports types.Importer) (wrong []error) {
	uses := code + whatYouHaveInDocs
	head := "package docs\n"
	for short, path := range packagesOfDocs {
		if regexp.MustCompile(`\b` + short + `\.`).MatchString(uses) {
			head += fmt.Sprintf("import %s %q\n", short, path)
		}
	}
	files := token.NewFileSet()
	source := head + whatYouHaveInDocs + "\n//line " + name + "\n" + code
	file, err := parser.ParseFile(files, "docs.go", source, parser.SkipObjectResolution)
	if err != nil { // statements, then
		source = head + whatYouHaveInDocs + "\nfunc _() {\n//line " + name + "\n" + code + "\n}"
		if file, err = parser.ParseFile(files, "docs.go", source, parser.SkipObjectResolution); err != nil {
			return []error{err}
		}
	}
	checker := types.Config{Importer: imports, Error: func(err error) {
		if !strings.Contains(err.Error(), "declared and not used") && !strings.Contains(err.Error(), "imported and not used") {
			wrong = append(wrong, err)
		}
	}}
	_, _ = checker.Check("docs", files, []*ast.File{file}, nil)
	return wrong
}

// exported is an importer of packagesOfDocs, and of what they import, from the build cache.
var exported = sync.OnceValue(func() types.Importer {
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	args = slices.AppendSeq(args, maps.Values(packagesOfDocs))
	out := testkit.Must(exec.Command("go", args...).Output())
	compiled := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			compiled[path] = file
		}
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(compiled[path])
	})
})
