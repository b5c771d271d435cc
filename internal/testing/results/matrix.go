// Package matrix is the file between the tests of what pub/subs and databases keep, and the report that prints it.
package results

import (
	"bytes"
	"encoding/json"
	"os"
)

// Variable names the environment variable that holds the file to which results are appended.
const Variable = "SPILLWAY_CONFORMANCE_OUT"

// Line is one cell.
type Line struct {
	PubSub  string `json:"pubsub"`
	Feature string `json:"feature"`
	// Case is empty for the whole feature. For a case that the target pins it is the name of the case.
	Case  string `json:"case,omitempty"`
	Title string `json:"title"`
	// Rests lists the ids of the sentences of docs/pubsub.md that the feature rests on.
	Rests  []string `json:"rests,omitempty"`
	Result string   `json:"result"` // pass, fail, skipped or pinned
	// Sentence is what the pub/sub does not keep, such as "K12 (keeps): ...", if Result is pinned. Reason is the
	// target's.
	Sentence string `json:"sentence,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// Append writes lines to the file that Variable names, at once. Without it nothing is written.
func Append(lines ...Line) error {
	path := os.Getenv(Variable)
	if path == "" {
		return nil
	}
	var text bytes.Buffer
	for _, line := range lines {
		if err := json.NewEncoder(&text).Encode(line); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(text.Bytes())
	return err
}
