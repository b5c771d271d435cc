package redrive

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/internal/engine"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
)

// DefaultMaxRedrives is the default of Rules.MaxRedrives.
const DefaultMaxRedrives = 3

// ErrNotAllowed is the error of a letter whose topic is not in Rules.Allow, or that has no origin topic.
var ErrNotAllowed = errors.New("redrive: topic not in the allow-list")

// Rules are what a Handler, Drain and DrainTopic have in common: which letters are redriven, to which topic, and how
// fast.
type Rules struct {
	// Allow lists the topics, by their exact names, that letters may be published to. No letter goes to any other
	// topic, whatever its metadata say. Required. For Drain, at most letters.MaxListed topics.
	Allow []string
	// To is published to instead of each letter's origin topic. It must be in Allow. Default: the origin topic.
	To string
	// ReentryTopic returns the topic at which a letter enters instead of its origin topic, or "" for its origin topic.
	// Allow must hold the origin topic in both cases. With the method ReentryTopic of stages.Stages, letters enter at
	// the first retry stage, apart from live traffic. The name must not come from the letter: nothing else checks it.
	// Default: the origin topic.
	ReentryTopic func(poison.Letter) string
	// Filter chooses the letters. Default: all letters; of a Store, all that wait. For a topic, the fields that choose
	// rows of a Store must be empty. For Drain, Filter.Limit and NewestFirst must be empty.
	Filter letters.Filter
	// Rate is the largest number of calls of the publisher per second, repeated calls included. Default: no limit.
	Rate float64
	// Concurrency is the largest number of letters that are published at the same time. Default: 1, which keeps their
	// order.
	Concurrency int
	// MaxRedrives is the number of redrives after which a letter that failed again is quarantined. Default:
	// DefaultMaxRedrives.
	MaxRedrives int
	// By names the operator. It is recorded as x-redriven-by. Default: none.
	By string
	// PublishAttempts is the number of times that a letter is offered to a publisher. Default: 3.
	PublishAttempts int
	// Hooks are called on each event. Default: none.
	Hooks Hooks
	// Naming names the topics of Park: give the Scheme that the queue has.
	Naming naming.Scheme
	// Seal opens letters that are sealed. A letter that does not open is not redriven: in a Store it stays as it is,
	// and in a topic it is parked. While the Keys are unavailable, letters stay where they are, and a drain ends with
	// the error. Default: that of the Store opens its letters.
	Seal *seal.Sealer
	// Shared: Classifier decides which refusals of a publisher are for size: such a letter goes without its history,
	// and says nothing of the publisher. Privacy masks the texts of errors, in the log and for Hooks. Logger receives
	// refusals.
	observe.Shared
}

// rules are Rules at work.
type rules struct {
	Rules
	owner     string // the name of the configuration they come from
	publisher message.Publisher
	id        string // of this drain or handler
	pacer     *pacer
}

func newRules(owner string, publisher message.Publisher, r Rules) (rules, error) {
	if err := engine.CheckPublisher("redrive", publisher, r.Allow...); err != nil {
		return rules{}, err
	}
	if r.Concurrency == 0 {
		r.Concurrency = 1
	}
	if r.MaxRedrives == 0 {
		r.MaxRedrives = DefaultMaxRedrives
	}
	if r.PublishAttempts == 0 {
		r.PublishAttempts = 3
	}
	r.Logger = logging.Wrap(r.Logger, r.Privacy.Text)
	if err := r.validate(owner); err != nil {
		return rules{}, err
	}
	r.Allow = slices.Clone(r.Allow)
	working := rules{Rules: r, owner: owner, publisher: publisher, id: watermill.NewUUID()}
	if r.Rate > 0 {
		working.pacer = newPacer(r.Rate)
	}
	return working, nil
}

func (r *Rules) validate(owner string) error {
	if len(r.Allow) == 0 {
		return fmt.Errorf("redrive: %s.Allow is empty: name the topics that letters may go to; a letter's own metadata "+
			"cannot be trusted", owner)
	}
	if slices.Contains(r.Allow, "") {
		return fmt.Errorf("redrive: %s.Allow contains an empty topic: name each topic", owner)
	}
	if r.To != "" && !slices.Contains(r.Allow, r.To) {
		return fmt.Errorf("redrive: %s.To is %q, which is not in Allow: add it there", owner, r.To)
	}
	if r.To != "" && r.ReentryTopic != nil {
		return fmt.Errorf("redrive: %s.To and ReentryTopic are both set: set one", owner)
	}
	if r.Rate < 0 || math.IsNaN(r.Rate) || math.IsInf(r.Rate, 0) {
		return fmt.Errorf("redrive: %s.Rate is %v letters per second: it must not be negative; 0 means no limit", owner,
			r.Rate)
	}
	if r.Concurrency < 0 || r.MaxRedrives < 0 || r.PublishAttempts < 0 {
		return fmt.Errorf("redrive: %s.Concurrency (%d), MaxRedrives (%d) and PublishAttempts (%d) must not be negative",
			owner, r.Concurrency, r.MaxRedrives, r.PublishAttempts)
	}
	if err := r.Filter.Validate(); err != nil {
		return fmt.Errorf("redrive: %s.Filter: %w", owner, err)
	}
	return nil
}

// ofTopic returns an error if the filter chooses by what only a Store knows.
func (r *Rules) ofTopic(owner string) error {
	f := r.Filter
	if len(f.Statuses) > 0 || f.After != 0 || f.MaxSeq != 0 || f.Limit != 0 || f.NewestFirst {
		return fmt.Errorf("redrive: %s.Filter: Statuses, After, MaxSeq, Limit and NewestFirst choose rows of a Store: a "+
			"topic has none, leave them empty", owner)
	}
	return nil
}

// target is the topic that the letter goes to, and an error that is ErrNotAllowed if it may not.
func (r *rules) target(l poison.Letter) (string, error) {
	topic := r.To
	if topic == "" {
		topic = l.Origin.Topic
	}
	if topic == "" {
		return "", fmt.Errorf("%w: the letter has no origin topic; set %s.To", ErrNotAllowed, r.owner)
	}
	if !slices.Contains(r.Allow, topic) {
		return topic, fmt.Errorf("%w: %q", ErrNotAllowed, logged(topic))
	}
	return r.entry(l, topic), nil
}

// entry is where a letter enters that may go to topic.
func (r *rules) entry(l poison.Letter, topic string) string {
	if r.ReentryTopic == nil {
		return topic
	}
	return engine.Entry(r.ReentryTopic, l, topic, func(err error) {
		logging.ReentryPanicked.Write(r.Logger, err, fields(l, topic))
	})
}

// spent reports whether the letter was redriven MaxRedrives times.
func (r *rules) spent(l poison.Letter) bool { return l.Redrive.Count >= r.MaxRedrives }

// Hooks are called after the event, in the goroutine that did it, and must be quick. With a Concurrency above 1 they
// are called concurrently. They may keep the letters that they are called with. A hook that panics is logged and
// changes nothing.
type Hooks struct {
	// OnRedrive is called with a letter that was published to the topic.
	OnRedrive func(ctx context.Context, l poison.Letter, topic string)
	// OnQuarantine is called with a letter that failed again after MaxRedrives redrives.
	OnQuarantine func(context.Context, poison.Letter)
	// OnRefused is called with a letter whose topic is not allowed. The topic is empty if the letter has none. Drain
	// does not call it: such letters stay in the Store, and Report counts them.
	OnRefused func(ctx context.Context, l poison.Letter, topic string)
	// OnParked is called with a message of a dead-letter topic that was parked, and the reason. The reason is: not
	// chosen, not allowed, no letter, or not accepted by the publisher. Of a message that is no letter, only Original
	// and Topic are set. Drain parks nothing.
	OnParked func(ctx context.Context, l poison.Letter, why error)
	// OnPublishError is called with each refusal by a publisher.
	OnPublishError func(context.Context, poison.Letter, error)
	// Tracer is called around each publishing of a letter, and around its settlement.
	Tracer observe.Tracer
}

func (r *rules) onRedrive(ctx context.Context, l poison.Letter, topic string) {
	if hook := r.Hooks.OnRedrive; hook != nil {
		safecall.Hook(r.Logger, "redrive.OnRedrive", func() { hook(ctx, l, topic) })
	}
}

func (r *rules) onQuarantine(ctx context.Context, l poison.Letter) {
	if hook := r.Hooks.OnQuarantine; hook != nil {
		safecall.Hook(r.Logger, "redrive.OnQuarantine", func() { hook(ctx, l) })
	}
}

func (r *rules) onRefused(ctx context.Context, l poison.Letter, topic string) {
	if hook := r.Hooks.OnRefused; hook != nil {
		safecall.Hook(r.Logger, "redrive.OnRefused", func() { hook(ctx, l, topic) })
	}
}

func (r *rules) onParked(ctx context.Context, l poison.Letter, why error) {
	if hook := r.Hooks.OnParked; hook != nil {
		safecall.Hook(r.Logger, "redrive.OnParked", func() { hook(ctx, l, r.Privacy.Error(why)) })
	}
}

func (r *rules) onPublishError(ctx context.Context, l poison.Letter, err error) {
	if hook := r.Hooks.OnPublishError; hook != nil {
		safecall.Hook(r.Logger, "redrive.OnPublishError", func() { hook(ctx, l, r.Privacy.Error(err)) })
	}
}

// fields are what a log line says of a letter: never its payload.
func fields(l poison.Letter, topic string) logging.Fields {
	return logging.Fields{
		logging.MessageID:       l.Original.UUID,
		logging.DeadLetterTopic: l.DeadLetterTopic,
		logging.Topic:           topic,
		logging.Handler:         l.Origin.Handler,
		"redrive_count":         l.Redrive.Count,
	}
}

// logged bounds a value that came with a message before it goes into a log line or an error.
func logged(value string) string { return boundedtext.Text(value, 200) }

// original is the letter of a message that is no dead letter.
func original(msg *message.Message) poison.Letter {
	return poison.Letter{Original: msg.CopyWithContext()}
}
