package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature V17: the program of --decode reads a payload and what is known of the message. Its text is masked, and made
// safe for the terminal. One that fails, writes without end or hangs is said to, and ends with its children.
func TestDecode(t *testing.T) {
	s := newShop(t, letter("1", "\x00\xffsecret-1"))
	program := func(script string) string {
		path := filepath.Join(t.TempDir(), "decoder")
		testkit.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
		return path
	}
	reads := program(`printf '{"password":"secret-1","bytes":%s,"of":%s}' "$(wc -c)" "$SPILLWAY_MESSAGE"`)
	got := s.pipe("show", "1", "--decode", reads)
	got.wants(t, 0, "payload, 10 bytes, decoded as application/json", `"bytes": 10`, `"topic": "orders"`, `"tenant": "blue"`, `"password": "[redacted]"`)
	testkit.Check(t, !strings.Contains(got.out, "secret-1"), "%s", got.out)
	got = s.pipe("show", "1", "--decode", reads, "--json", "--format", "hex")
	got.wants(t, 0, `"decoded":{"media_type":"application/json"`)
	testkit.Check(t, !strings.Contains(got.out, "payload_b64"), "the bytes of what is masked: %s", got.out)
	s.pipe("show", "1", "--decode", reads, "--unmasked", "--reason", "INC-7").wants(t, 0, "|..secret-1|")
	got = s.pipe("show", "1", "--decode", program(`printf '\033[2Jwiped\200'`))
	got.wants(t, 0, "the text is no UTF-8", "00 ff 73")
	got = s.pipe("show", "1", "--decode", program(`printf '\033[2Jwiped'`))
	got.wants(t, 0, `\x1b[2Jwiped`, "decoded as text/plain")
	s.pipe("show", "1", "--decode", program(`echo no schema 7 >&2; exit 3`)).wants(t, 0, "exit status 3: no schema 7", "00 ff 73")
	s.pipe("show", "1", "--decode", program(`exec cat /dev/zero`)).wants(t, 0, "it writes more than 1048576 bytes", "00 ff 73")
	s.pipe("show", "1", "--decode", "/nowhere/at all").wants(t, 2, `--decode is "/nowhere/at all": name a program, without arguments`)

	fifo := filepath.Join(t.TempDir(), "alive") // has an end as long as a child of the program lives
	testkit.NoError(t, syscall.Mkfifo(fifo, 0o600))
	alive := testkit.Must(os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0))
	defer alive.Close()
	began := time.Now()
	s.pipe("show", "1", "--decode", program(`sleep 600 > `+fifo+` & sleep 600`)).wants(t, 0, "the payload is not decoded", "00 ff 73")
	testkit.Check(t, time.Since(began) < 60*time.Second, "it took %s", time.Since(began))
	testkit.Eventually(t, "the child has ended", func() bool {
		n, err := syscall.Read(int(alive.Fd()), make([]byte, 1))
		return n == 0 && err == nil // the end of the file: no one can write
	})
}
