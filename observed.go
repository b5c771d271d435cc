package spillway

import (
	"slices"

	"github.com/watermill-spillway/spillway/internal/observing"
)

// observer puts its hooks into a Config.
type observer struct {
	is   any // what has the method Observe
	hook func(config any)
}

func isObserver(is any) func(observer) bool { return func(o observer) bool { return o.is == is } }

func init() {
	observing.Register(
		func(config, is any, hook func(config any)) bool {
			c := config.(*Config)
			if slices.ContainsFunc(c.observers, isObserver(is)) {
				return false
			}
			c.observers = append(slices.Clip(c.observers), observer{is, hook}) // a copy of the Config has observers of its own
			return true
		},
		func(channel, is any) bool { return slices.ContainsFunc(channel.(*Channel).observers, isObserver(is)) },
	)
}

// observed puts the hooks of the observers into the Config, whatever was set since Observe.
func (c *Config) observed() {
	for _, o := range c.observers {
		o.hook(c)
	}
}
