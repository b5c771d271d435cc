package redrive

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
)

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
