package stages

import (
	"fmt"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/naming"
)

// checkNames finds at construction what would go wrong for every handler.
func (c *Config) checkNames() error {
	if err := c.Naming.Validate(); err != nil {
		return fmt.Errorf("stages: Config.Naming: %w", err)
	}
	named := map[string]time.Duration{}
	for _, stage := range c.active() {
		topic, err := c.topicOf(naming.Source{Topic: "orders", Handler: "billing", Delay: stage.Delay})
		if err != nil {
			return fmt.Errorf("stages: %w", err)
		}
		if other, ok := named[topic]; ok && other != stage.Delay {
			return fmt.Errorf("stages: %w", sameName(topic, other, stage.Delay))
		}
		named[topic] = stage.Delay
	}
	return nil
}

func sameName(topic string, delay, other time.Duration) error {
	return fmt.Errorf("Config.Naming names %q for delays of %s and %s: in one topic a message would wait behind one "+
		"that is due later; give each delay a name of its own", topic, delay, other)
}

// topicOf names the topic of a stage.
func (c *Config) topicOf(source naming.Source) (string, error) {
	topic := c.Naming.StageTopic(source)
	if topic == source.Topic {
		return "", fmt.Errorf("Config.Naming names %q for the stage of %s of handler %q on topic %q: it must be another topic",
			topic, source.Delay, source.Handler, source.Topic)
	}
	return topic, nil
}

// shares reports whether several sources have the same stage topic.
func (c *Config) shares(delay time.Duration) bool {
	pattern := c.Naming.Stage
	if delay == 0 {
		pattern = c.Naming.Reentry
	}
	return pattern != "" && !(strings.Contains(pattern, "{topic}") && strings.Contains(pattern, "{handler}"))
}
