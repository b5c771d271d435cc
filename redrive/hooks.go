package redrive

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/poison"
)

// Hooks are called after the event, in the goroutine that did it, and must be quick. With a Concurrency above 1 they are
// called concurrently. Letters that they are given may be kept. A hook that panics is logged and changes nothing.
type Hooks struct {
	// OnRedrive is called with a letter that was published to the topic.
	OnRedrive func(ctx context.Context, l poison.Letter, topic string)
	// OnQuarantine is called with a letter that was redriven as often as is allowed.
	OnQuarantine func(context.Context, poison.Letter)
	// OnRefused is called with a letter whose topic (empty, if it has none) is not allowed. A Drain of a Store does not call
	// it: its Report counts such letters, which stay as they are.
	OnRefused func(ctx context.Context, l poison.Letter, topic string)
	// OnParked is called with a message of a dead-letter topic that was parked, and why: not chosen, not allowed, not a
	// letter (then only Letter.Original and Topic are set), or not accepted by the publisher. A Store parks nothing.
	OnParked func(ctx context.Context, l poison.Letter, why error)
	// OnPublishError is called with each refusal by a publisher.
	OnPublishError func(context.Context, poison.Letter, error)
}

func (r *rules) onRedrive(ctx context.Context, l poison.Letter, topic string) {
	if hook := r.hooks.OnRedrive; hook != nil {
		safecall.Hook(r.logger, "redrive.OnRedrive", func() { hook(ctx, l, topic) })
	}
}

func (r *rules) onQuarantine(ctx context.Context, l poison.Letter) {
	if hook := r.hooks.OnQuarantine; hook != nil {
		safecall.Hook(r.logger, "redrive.OnQuarantine", func() { hook(ctx, l) })
	}
}

func (r *rules) onRefused(ctx context.Context, l poison.Letter, topic string) {
	if hook := r.hooks.OnRefused; hook != nil {
		safecall.Hook(r.logger, "redrive.OnRefused", func() { hook(ctx, l, topic) })
	}
}

func (r *rules) onParked(ctx context.Context, l poison.Letter, why error) {
	if hook := r.hooks.OnParked; hook != nil {
		safecall.Hook(r.logger, "redrive.OnParked", func() { hook(ctx, l, why) })
	}
}

func (r *rules) onPublishError(ctx context.Context, l poison.Letter, err error) {
	if hook := r.hooks.OnPublishError; hook != nil {
		safecall.Hook(r.logger, "redrive.OnPublishError", func() { hook(ctx, l, err) })
	}
}

// fields are what a log line tells of a letter: never its payload, and no text of unknown length.
func fields(l poison.Letter, topic string) map[string]any {
	return map[string]any{
		"message_uuid":  logged(l.Original.UUID),
		"dead_letter":   logged(l.Topic),
		"topic":         logged(topic),
		"handler":       logged(l.Origin.Handler),
		"redrive_count": l.Redrive.Count,
	}
}

// logged bounds a value that came with a message before it goes into a log line or an error.
func logged(value string) string { return boundedtext.Text(value, 200) }

// original is the letter of a message that is none.
func original(msg *message.Message) poison.Letter {
	return poison.Letter{Original: msg.CopyWithContext()}
}
