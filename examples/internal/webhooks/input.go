package webhooks

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

//go:embed github-webhooks.jsonl
var embedded string

// EventKey is the metadata that names the kind of event, as GitHub's X-GitHub-Event header does.
const EventKey = "github-event"

// Load reads events, a line {"event": name, "payload": {...}} each, from a file, or those that are built in where path
// is empty.
func Load(path string) ([]*message.Message, error) {
	if path == "" {
		return read(strings.NewReader(embedded), "the built-in events")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	defer file.Close()
	return read(file, path)
}

func read(r io.Reader, name string) ([]*message.Message, error) {
	var events []*message.Message
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 32<<20)
	for number := 1; lines.Scan(); number++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var line struct {
			Event   string          `json:"event"`
			Payload json.RawMessage `json:"payload"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("%s, line %d: want {\"event\": name, \"payload\": {...}}: %w", name, number, err)
		}
		if line.Event == "" || len(line.Payload) == 0 {
			return nil, fmt.Errorf("%s, line %d: event or payload is missing", name, number)
		}
		msg := message.NewMessage(fmt.Sprintf("event-%05d", number), message.Payload(line.Payload))
		msg.Metadata.Set(EventKey, line.Event)
		events = append(events, msg)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(events) == 0 {
		return nil, fmt.Errorf("%s: no events", name)
	}
	return events, nil
}
