package poison

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/safecall"
)

// withheld stands for what a mask panicked over: it may be the very secret.
const withheld = "[withheld: the mask panicked]"

func (q *Queue) maskTexts(f *Failure) {
	mask := q.config.Privacy.Text
	latest := f.Description // the same as the last error of the history, as a rule
	f.Reason, f.Description, f.Stack = mask(f.Reason), mask(f.Description), mask(f.Stack)
	for i := range f.History {
		if err := &f.History[i].Error; *err == latest {
			*err = f.Description
		} else {
			*err = mask(*err)
		}
	}
}

func (q *Queue) maskMetadata(metadata message.Metadata) {
	if q.config.MaskMetadata == nil {
		return
	}
	for key, value := range metadata {
		metadata[key] = q.masked("MaskMetadata", value, func(value string) string {
			return q.config.MaskMetadata(key, value)
		})
	}
}

func (q *Queue) masked(field, value string, mask func(string) string) string {
	if value == "" {
		return ""
	}
	result := withheld
	if err := safecall.Call("poison."+field, func() error { result = mask(value); return nil }); err != nil {
		logging.MaskPanicked.Write(q.config.Logger, nil, logging.Fields{logging.Config: "QueueConfig." + field})
	}
	return result
}
