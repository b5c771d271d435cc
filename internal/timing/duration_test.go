package timing_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/timing"
)

// Feature V13: a time is the same text in answers and requests, which time.ParseDuration reads. What is none says which
// field it is.
func TestDuration(t *testing.T) {
	type body struct {
		Wait timing.Duration `json:"wait,omitempty"`
	}
	pattern := regexp.MustCompile(timing.Pattern)
	for text, is := range map[string]time.Duration{"1h30m": 90 * time.Minute, "1m": time.Minute, "2h": 2 * time.Hour, "10s": 10 * time.Second,
		"1h0m1s": time.Hour + time.Second, "1.5s": 1500 * time.Millisecond, "20m": 20 * time.Minute, "250ms": 250 * time.Millisecond,
		"1.5µs": 1500, "30h20m": 30*time.Hour + 20*time.Minute} {
		written, err := json.Marshal(body{timing.Duration(is)})
		if err != nil || string(written) != `{"wait":"`+text+`"}` || !pattern.MatchString(text) {
			t.Errorf("%v is %s, %v", is, written, err)
		}
		var read body
		if err := json.Unmarshal(written, &read); err != nil || time.Duration(read.Wait) != is {
			t.Errorf("%s is %v, %v", text, read.Wait, err)
		}
	}
	if written, _ := json.Marshal(body{}); string(written) != "{}" {
		t.Errorf("none is %s", written)
	}
	for _, text := range []string{`"soon"`, `""`, `60000000000`, `"1d"`, `"5"`} {
		var field *json.UnmarshalTypeError
		if err := json.Unmarshal([]byte(`{"wait":`+text+`}`), &body{}); !errors.As(err, &field) || field.Field != "wait" {
			t.Errorf("%s: %v", text, err)
		}
	}
}
