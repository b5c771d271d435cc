package modules_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// users are programs of others, with versions of their own that are older than the newest. Each keeps them.
var users = map[string]struct {
	requires map[string]string
	imports  []string // to be compiled
}{
	"the front door": {
		map[string]string{
			"github.com/jackc/pgx/v5": "v5.7.2", "go.opentelemetry.io/otel": "v1.34.0", "github.com/redis/go-redis/v9": "v9.7.0",
			"github.com/prometheus/client_golang": "v1.23.0", "github.com/go-sql-driver/mysql": "v1.8.1", "github.com/lib/pq": "v1.10.9",
		},
		[]string{
			own, own + "/redrive/console", own + "/observe/notify", "github.com/jackc/pgx/v5/stdlib", "go.opentelemetry.io/otel", "github.com/redis/go-redis/v9",
			"github.com/prometheus/client_golang/prometheus", "github.com/go-sql-driver/mysql", "github.com/lib/pq",
		},
	},
	"an adapter": {
		map[string]string{"github.com/IBM/sarama": "v1.43.3", "github.com/jackc/pgx/v5": "v5.6.0", "go.opentelemetry.io/otel": "v1.29.0"},
		[]string{own, own + "/pubsub/wmkafka", "github.com/IBM/sarama", "github.com/jackc/pgx/v5", "go.opentelemetry.io/otel"},
	},
	"telemetry": {
		map[string]string{"go.opentelemetry.io/otel": "v1.34.0", "go.opentelemetry.io/otel/sdk": "v1.34.0", "github.com/jackc/pgx/v5": "v5.7.2", "github.com/redis/go-redis/v9": "v9.7.0"},
		[]string{own, own + "/observe/telemetry", "go.opentelemetry.io/otel/sdk/trace", "github.com/jackc/pgx/v5", "github.com/redis/go-redis/v9"},
	},
	"pgxstore": {
		map[string]string{"github.com/jackc/pgx/v5": "v5.7.2", "go.opentelemetry.io/otel": "v1.34.0", "github.com/redis/go-redis/v9": "v9.7.0"},
		[]string{own, own + "/idempotency/pgxstore", "github.com/jackc/pgx/v5/stdlib", "go.opentelemetry.io/otel", "github.com/redis/go-redis/v9"},
	},
	"prom": {
		map[string]string{"github.com/prometheus/client_golang": "v1.23.0", "github.com/jackc/pgx/v5": "v5.7.2", "go.opentelemetry.io/otel": "v1.34.0"},
		[]string{own, own + "/observe/prom", "github.com/prometheus/client_golang/prometheus", "github.com/jackc/pgx/v5", "go.opentelemetry.io/otel"},
	},
}

// A user's own versions stay, whatever part of Spillway is imported beside them.
func TestUsersKeepTheirVersions(t *testing.T) {
	p := publish(t)
	for name, user := range users {
		t.Run(name, func(t *testing.T) {
			p := &published{t, p.cache, p.env}
			folder := t.TempDir()
			file := "module example.com/user\n\ngo 1.25.0\n\nrequire " + own + " " + version + "\n"
			for path, v := range user.requires {
				file += "require " + path + " " + v + "\n"
			}
			source := "package user\n\nimport (\n" // no program: what is compiled need not be linked
			for _, path := range user.imports {
				source += fmt.Sprintf("\t_ %q\n", path)
				for _, nested := range []string{"/observe/prom", "/observe/telemetry"} {
					if path == own+nested {
						file += "require " + path + " " + version + "\n"
					}
				}
			}
			p.write(filepath.Join(folder, "go.mod"), file)
			p.write(filepath.Join(folder, "user.go"), source+")\n")
			p.do(folder, "mod", "tidy")
			p.do(folder, "build", ".")
			for path, want := range user.requires {
				if got := strings.TrimSpace(p.do(folder, "list", "-m", "-f", "{{.Version}}", path)); got != want {
					t.Errorf("%s becomes %s, and the user had %s", path, got, want)
				}
			}
		})
	}
}
