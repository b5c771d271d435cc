package api

import (
	"net/http"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
)

// route is one row of the table: who may send which request, what answers it, and what the document says of it.
type route struct {
	name    string // the id of the operation in the document
	method  string // GET serves HEAD too
	pattern string // {name} stands for one part of the path
	right   operate.Right
	says    string // one sentence
	handle  func(*Handler, *request) (answer, error)
	query   []string      // the fields of the query: another is refused
	body    any           // the zero value of its body, if it takes one
	gives   any           // the zero value of its answer, or a media type
	status  int           // of its answer, if not 200
	keyed   bool          // it needs an Idempotency-Key
	within  time.Duration // of all that the route does, if not Handler.Timeout
	most    int64         // bytes that a body may have, if not maxBody
}

const (
	get  = http.MethodGet
	post = http.MethodPost
	look = operate.LookWithoutPayload
	act  = operate.Act
)

const (
	// maxEdit is how many bytes a body with an edit may have.
	maxEdit = 1 << 20
)

// The fields of queries.
var (
	filterFields  = namesOf(operate.FilterFields)
	lettersFields = slices.Concat(filterFields, []string{"limit", "cursor", "order", "after"})
	auditFields   = []string{"by", "kind", "since", "until", "id", "redrive-id", "letter", "order"}
	// lists are the fields that may have several values, and flags those that are set or not.
	lists = []string{"status", "class", "topic", "handler", "failure-reason", "cause", "id", "type", "not-topic",
		"dead-letter-topic", "redrive-id", "seal-key", "metadata", "by", "kind", "state"}
	flags = []string{"no-origin", "leased", "unsealed"}
)

func namesOf(fields []operate.FilterField) (names []string) {
	for _, f := range fields {
		names = append(names, f.Name)
	}
	return names
}

// routes returns all routes. A route without a row in TestRights fails that test.
func routes() []route { return slices.Concat(reading(), deciding()) }
