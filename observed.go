package spillway

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
)

// Observer follows what a Channel does, such as a prom.Metrics, a telemetry.Telemetry or a notify.Notifier.
type Observer interface {
	// Observe is called by New with its copy of the Config. It puts the observer's hooks before those that Config has.
	Observe(config *Config) error
}

// observe has the observers put their hooks into the Config.
func (c *Config) observe() error {
	for i, o := range c.Observers {
		if safecall.IsNil(o) {
			return fmt.Errorf("Config.Observers[%d] is nil: check the error of its New", i)
		}
		if reflect.TypeOf(o).Comparable() && slices.Contains(c.Observers[:i], o) {
			return errors.New("Config.Observers has one observer twice, and everything would count twice: name each once")
		}
		if err := o.Observe(c); err != nil {
			return err
		}
	}
	return nil
}
