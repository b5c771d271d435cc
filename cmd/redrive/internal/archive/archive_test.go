package archive_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/archive"
	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Feature V10: whatever bytes a letter has, its line brings them back.
func TestLossless(t *testing.T) {
	bytes := rapid.OneOf(rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		msg := message.NewMessage(bytes.Draw(t, "id"), nil)
		if rapid.Bool().Draw(t, "with a payload") {
			msg.Payload = []byte(bytes.Draw(t, "payload"))
		}
		for range rapid.IntRange(0, 3).Draw(t, "keys") {
			msg.Metadata["k"+bytes.Draw(t, "key")] = bytes.Draw(t, "value")
		}
		l := letters.Letter{Letter: poison.Letter{Original: msg, DeadLetterTopic: "orders.dlq", Failure: poison.Failure{Reason: "reason"}}, Status: letters.StatusWaiting}
		line := testkit.Must(screen.Line(archive.Of(l)))
		r, err := archive.Parse(line)
		testkit.Require(t, err == nil, "%s: %v", line, err)
		got, want := r.Message(), l.Encode()
		testkit.Require(t, got.UUID == want.UUID && slices.Equal(got.Payload, want.Payload) &&
			(got.Payload == nil) == (want.Payload == nil) && maps.Equal(got.Metadata, want.Metadata),
			"%s\nis %q %q %q\nwant %q %q %q", line, got.UUID, got.Metadata, got.Payload, want.UUID, want.Metadata, want.Payload)
	})
}

// A line that is no record is refused before anything is stored.
func TestParseRefuses(t *testing.T) {
	for line, says := range map[string]string{
		`{`: "no record", `{"other":1}`: "unknown field", `{"spillway":2,"dead_letter_topic":"x"}`: "version", `{"spillway":1}`: "dead_letter_topic",
		`{"spillway":1,"dead_letter_topic":"x","payload":"a","payload_b64":"YQ=="}`: "twice",
	} {
		testkit.Says(t, testkit.Err(archive.Parse([]byte(line))), says)
	}
}
