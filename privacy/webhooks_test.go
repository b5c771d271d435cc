package privacy_test

import (
	"bytes"
	"os"
	"runtime/debug"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/privacy"
)

// Feature D14: payloads that hold no secret keep every byte: the real webhooks of the demo, but for the one that has a
// signed URL with a key of AWS. So does the stack of a panic.
func TestWebhooksStayReadable(t *testing.T) {
	all := testkit.Must(os.ReadFile("../examples/internal/webhooks/github-webhooks.jsonl"))
	n, masked := 0, 0
	for line := range bytes.Lines(all) {
		n++
		if bytes.Contains(line, []byte("X-Amz-Credential=AKIA")) {
			if got := standard.Payload(line); !bytes.Contains(got, []byte("X-Amz-Credential=[redacted]&")) || bytes.Contains(got, []byte("AKIA")) {
				t.Errorf("webhook %d: the key is readable", n)
			}
			masked++
			continue
		}
		if got := standard.Payload(line); !bytes.Equal(got, line) {
			at := 0
			for at < len(got) && at < len(line) && got[at] == line[at] {
				at++
			}
			t.Errorf("webhook %d: %.120s is shown as %.60s", n, line[max(0, at-60):], got[at:])
		}
		if got := standard.Text(string(line[:min(len(line), privacy.MaxText)])); got != string(line[:min(len(line), privacy.MaxText)]) {
			t.Errorf("webhook %d as a text is changed", n)
		}
	}
	testkit.Check(t, n >= 60 && masked == 1, "%d webhooks, %d masked", n, masked)
	stack := string(debug.Stack())
	testkit.Check(t, standard.Text(stack) == stack, "%v", standard.Text(stack))
}
