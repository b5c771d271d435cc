package redrive

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/decorated"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/poison"
)

// DefaultMaxRedrives is how often a letter comes back, where nothing else is configured.
const DefaultMaxRedrives = 3

// ErrNotAllowed is why a letter was not redriven whose topic is not in the allow-list, or that tells no topic.
var ErrNotAllowed = errors.New("redrive: topic not in the allow-list")

// rules are what every way of redriving has in common: where to, how fast, how often.
type rules struct {
	owner       string // the name of the configuration they come from
	allow       []string
	to          string
	entry       func(poison.Letter) string
	rate        float64
	concurrency int
	maxRedrives int
	attempts    int
	by          string
	logger      watermill.LoggerAdapter
	hooks       Hooks

	id    string // of this campaign
	pacer *pacer
}

func (r *rules) setDefaults() {
	if r.concurrency == 0 {
		r.concurrency = 1
	}
	if r.maxRedrives == 0 {
		r.maxRedrives = DefaultMaxRedrives
	}
	if r.attempts == 0 {
		r.attempts = 3
	}
	if r.logger == nil {
		r.logger = watermill.NopLogger{}
	}
	r.allow = slices.Clone(r.allow)
	r.id = watermill.NewUUID()
}

func (r *rules) validate() error {
	if len(r.allow) == 0 {
		return fmt.Errorf("redrive: %s.Allow is empty: name the topics that letters may go to; a letter's own metadata are not to be trusted", r.owner)
	}
	if slices.Contains(r.allow, "") {
		return fmt.Errorf("redrive: %s.Allow holds an empty topic", r.owner)
	}
	if r.to != "" && !slices.Contains(r.allow, r.to) {
		return fmt.Errorf("redrive: %s.To is %q, which is not in Allow", r.owner, r.to)
	}
	if r.to != "" && r.entry != nil {
		return fmt.Errorf("redrive: %s.To and Entry are both set: give one", r.owner)
	}
	if r.rate < 0 || math.IsNaN(r.rate) || math.IsInf(r.rate, 0) {
		return fmt.Errorf("redrive: %s.Rate is %v letters per second: it must not be negative; 0 means no limit", r.owner, r.rate)
	}
	if r.concurrency < 0 || r.maxRedrives < 0 || r.attempts < 0 {
		return fmt.Errorf("redrive: %s.Concurrency (%d), MaxRedrives (%d) and PublishAttempts (%d) must not be negative",
			r.owner, r.concurrency, r.maxRedrives, r.attempts)
	}
	if r.rate > 0 {
		r.pacer = newPacer(r.rate)
	}
	return nil
}

// wayBack returns an error for a publisher with which letters do not come back.
func wayBack(name string, publisher message.Publisher) error {
	if safecall.IsNil(publisher) {
		return fmt.Errorf("redrive: %s is nil: letters have no way back", name)
	}
	if _, isStore := decorated.As[*Store](publisher); isStore || decorated.Hides[*Store](publisher) != nil {
		return fmt.Errorf("redrive: %s is a dead-letter Store: letters would come to lie there again; give the publisher of the live topics", name)
	}
	return nil
}

// target is the topic that the letter goes to, and an error that is ErrNotAllowed if it may not.
func (r *rules) target(l poison.Letter) (string, error) {
	topic := r.to
	if topic == "" {
		topic = l.Origin.Topic
	}
	if topic == "" {
		return "", fmt.Errorf("%w: the letter tells no origin topic; use %s.To", ErrNotAllowed, r.owner)
	}
	if !slices.Contains(r.allow, topic) {
		return topic, fmt.Errorf("%w: %q", ErrNotAllowed, logged(topic))
	}
	return r.entryOf(l, topic), nil
}

// entryOf is where a letter enters that may go to topic.
func (r *rules) entryOf(l poison.Letter, topic string) string {
	if r.entry == nil || r.to != "" {
		return topic
	}
	var entry string
	if err := safecall.Call("redrive.Entry", func() error { entry = r.entry(l); return nil }); err != nil {
		r.logger.Error("Entry panicked; the letter goes to its origin topic", err, fields(l, topic))
	}
	if entry == "" {
		return topic
	}
	return entry
}

// spent tells whether the letter came back as often as is allowed.
func (r *rules) spent(l poison.Letter) bool { return l.Redrive.Count >= r.maxRedrives }
