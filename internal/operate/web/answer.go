package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Unchanged gives an answer its tag, and answers 304 if the reader has it already.
func Unchanged(w http.ResponseWriter, r *http.Request, body []byte) bool {
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:12]) + `"`
	w.Header().Set("ETag", "W/"+tag)
	for one := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag {
			w.WriteHeader(http.StatusNotModified)
			return true
		}
	}
	return false
}

// Send sends a body as the reader takes it, if the method has one. A short one is not compressed.
func Send(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	if len(body) > 1<<10 && takesGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		body = compressed(body)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the reader may be gone
	}
}

func takesGzip(r *http.Request) bool {
	for offer := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(offer), ";")
		if strings.TrimSpace(name) == "gzip" && strings.ReplaceAll(weight, " ", "") != "q=0" {
			return true
		}
	}
	return false
}

func compressed(body []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(body) // into memory
	_ = z.Close()
	return out.Bytes()
}

// File is what a browser stores, as it is.
type File struct {
	Kind  string // its media type
	Name  string // letters, digits and ". _ -" only
	Size  int    // if known
	Write func(io.Writer) error
}

// Bytes are bytes as a File.
func Bytes(name string, body []byte) *File {
	return &File{Kind: "application/octet-stream", Name: name, Size: len(body),
		Write: func(w io.Writer) error { _, err := w.Write(body); return err }}
}

// Send sends the file. If it breaks off, the connection is cut, so that nothing takes the beginning for the whole.
func (f *File) Send(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Type", f.Kind)
	header.Set("Content-Disposition", `attachment; filename="`+f.Name+`"`)
	if f.Size > 0 {
		header.Set("Content-Length", strconv.Itoa(f.Size))
	}
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead && f.Write(w) != nil {
		panic(http.ErrAbortHandler)
	}
}

// Explain says why a request has no answer, for any error, and whether the text of the error says more. timeout is how
// long the request might take.
func Explain(err error, masks *privacy.Redactor, timeout time.Duration) (p *operate.Problem, more bool) {
	is := func(status int, kind, title, detail string) *operate.Problem {
		return &operate.Problem{Status: status, Type: kind, Title: title, Detail: detail}
	}
	conflict := func(detail string) *operate.Problem {
		return is(http.StatusConflict, operate.ProblemChanged, "Something has changed meanwhile", detail)
	}
	missing := func(detail string) *operate.Problem {
		return is(http.StatusNotFound, operate.ProblemNotFound, "Not found", detail)
	}
	const cannot = "This cannot be done"
	forbidden, large, wrong := (*operate.Forbidden)(nil), (*http.MaxBytesError)(nil), (*operate.Wrong)(nil)
	now, changed := (*operate.MoreMatch)(nil), (*operate.Changed)(nil)
	switch {
	case errors.As(err, &p):
		return p, false
	case errors.As(err, &wrong):
		p = is(http.StatusBadRequest, operate.ProblemInvalid, cannot, wrong.Error())
		if wrong.Field != "" {
			p.Errors = []operate.FieldProblem{{Field: wrong.Field, Value: wrong.Value, Detail: wrong.Why, Remedy: wrong.Remedy}}
		}
		return p, false
	case errors.As(err, &forbidden):
		return is(http.StatusForbidden, operate.ProblemForbidden, "Not allowed", forbidden.Why), false
	case errors.As(err, &now):
		return conflict(fmt.Sprintf("%d letters match now, more than you saw. Nothing was changed. Look again.", now.Now)), false
	case errors.As(err, &changed):
		return conflict("The letter has changed since you saw it: it is " + operate.StatusWords(changed.Letter.Status) +
			". Nothing was changed. Look again."), false
	case errors.Is(err, inside.ErrNoPolicy):
		return missing("There is no such policy, or the cause is not blocked for it."), false
	case errors.Is(err, inside.ErrNoCause):
		return missing("No letter of the service ever had such a cause."), false
	case errors.Is(err, parked.ErrNotParked):
		return missing(operate.Undecided(err)), false
	case operate.Undecided(err) != "":
		return conflict(operate.Undecided(err)), false
	case errors.Is(err, letters.ErrNotFound), errors.Is(err, campaigns.ErrNotFound):
		return missing("What you look for is not there. It may have been purged, or it belongs to another service."), true
	case errors.Is(err, campaigns.ErrState), errors.Is(err, letters.ErrLeaseLost), errors.Is(err, inside.ErrNoteChanged):
		return conflict("Nothing was changed. Look at the present state, and decide again."), true
	case errors.Is(err, operate.ErrNoOutages):
		return is(http.StatusConflict, operate.ProblemNoOutages, "Nothing is shared here", err.Error()), false
	case errors.Is(err, inside.ErrKeyReused):
		return is(http.StatusUnprocessableEntity, operate.ProblemKeyReused, "The Idempotency-Key was used before",
			"Another request had this Idempotency-Key. Nothing was changed. Make a new key for each request."), false
	case errors.Is(err, campaigns.ErrRequest):
		return is(http.StatusBadRequest, operate.ProblemInvalid, cannot, masks.Text(boundedtext.Error(err, privacy.MaxText))), false
	case errors.Is(err, os.ErrDeadlineExceeded):
		return is(http.StatusRequestTimeout, operate.ProblemSlow, "This takes too long",
			"The body did not arrive in time. Nothing was changed. Send it again."), false
	case errors.As(err, &large):
		return is(http.StatusRequestEntityTooLarge, operate.ProblemTooLarge, "Too large",
			fmt.Sprintf("The body may have at most %d bytes.", large.Limit)), false
	case errors.As(err, new(*classify.PanicError)):
		return is(http.StatusInternalServerError, operate.ProblemFailed, "The request failed",
			"This is a fault of the console. The log of the service says more."), false
	case errors.Is(err, context.DeadlineExceeded):
		return is(http.StatusServiceUnavailable, operate.ProblemTimeout, "This takes too long",
			fmt.Sprintf("The database had no answer within %v. Choose fewer letters, or try again.", timeout)), false
	}
	return is(http.StatusServiceUnavailable, operate.ProblemUnavailable, "The database does not answer",
		"The dead letters are safe where they are. Messages are not affected."), true
}
