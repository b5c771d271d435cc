package classify_test

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"math"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// check judges err bare, below layers, and beside an unknown error.
func check(t *testing.T, name string, err error, want classify.Class) {
	t.Helper()
	testkit.Require(t, err != nil, "%s: no error", name)
	for place, err := range map[string]error{"bare": err, "wrapped": wrap(err, 3), "joined": errors.Join(errors.New("a"), err)} {
		v := judge(err)
		testkit.Check(t, v.Class == want, "%s, %s: %v, want %v: %T %v", name, place, v.Class, want, err, err)
	}
}

// Feature C4: contexts of the handler's own that end are transient.
func TestKnowledgeContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	check(t, "deadline", ctx.Err(), classify.ClassTransient)
	ctx, cancel = context.WithCancel(context.Background())
	cancel()
	check(t, "cancelled", ctx.Err(), classify.ClassTransient)
}

// Feature C4: real errors of encoding/json: bad input is the message's fault, misuse is the program's.
func TestKnowledgeJSON(t *testing.T) {
	var into struct{ N int }
	for input, want := range map[string]classify.Class{
		`{"N":`: classify.ClassInvalid, `}`: classify.ClassInvalid, ``: classify.ClassInvalid, `{"N":"one"}`: classify.ClassInvalid,
		`[]`: classify.ClassInvalid, "\x00": classify.ClassInvalid, `{"N":1e99}`: classify.ClassInvalid,
	} {
		err := json.Unmarshal([]byte(input), &into)
		check(t, input, err, want)
		testkit.Equal(t, input+": reason", judge(err).Reason, classify.ReasonUnmarshal)
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(`{"N":x}`)))
	check(t, "decoder", decoder.Decode(&into), classify.ClassInvalid)
	for _, target := range []any{into, nil, (*int)(nil)} {
		check(t, "no pointer", json.Unmarshal([]byte(`{}`), target), classify.ClassPermanent)
	}
	for name, value := range map[string]any{"channel": make(chan int), "NaN": math.NaN(), "marshaler": refuses{}} {
		_, err := json.Marshal(value)
		check(t, name, err, classify.ClassPermanent)
	}
}

type refuses struct{}

func (refuses) MarshalJSON() ([]byte, error) { return nil, errors.New("no") }

// Feature C4: errors of the operating system, as package os wraps them too.
func TestKnowledgeSyscall(t *testing.T) {
	for errno, want := range map[syscall.Errno]classify.Class{
		syscall.ECONNREFUSED: classify.ClassTransient, syscall.EPIPE: classify.ClassTransient, syscall.ENOSPC: classify.ClassTransient,
		syscall.EAGAIN: classify.ClassTransient, syscall.EMFILE: classify.ClassTransient, syscall.EACCES: classify.ClassPermanent,
		syscall.EINVAL: classify.ClassPermanent, syscall.EISDIR: classify.ClassPermanent, syscall.ENOENT: classify.ClassUnknown,
	} {
		check(t, errno.Error(), errno, want)
		check(t, errno.Error(), &os.PathError{Op: "open", Path: "x", Err: errno}, want)
		check(t, errno.Error(), os.NewSyscallError("write", errno), want)
	}
	_, err := os.Open(t.TempDir() + "/missing")
	check(t, "missing", err, classify.ClassUnknown)
	check(t, "bad connection", driver.ErrBadConn, classify.ClassTransient)
	check(t, "any timeout", errTimeout{}, classify.ClassTransient)
}
