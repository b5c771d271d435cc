// Package observing links observers, such as those of metrics and notices, with the Config and the Channel of package
// spillway. Those import package spillway, which exports nothing for it.
package observing

import "fmt"

var (
	add func(config, observer any, hook func(config any)) bool
	has func(channel, observer any) bool
)

// Register is for package spillway. addTo has hook called with the Config that New makes a Channel of, and reports
// false if the Config has the observer already. hasIt reports whether the Channel was made of a Config with the
// observer.
func Register(addTo func(config, observer any, hook func(config any)) bool, hasIt func(channel, observer any) bool) {
	add, has = addTo, hasIt
}

// Observe has hook put an observer's hooks into config when New makes a Channel of it. So they stand on all hooks that
// config has then.
func Observe[C any](of string, config *C, observer any, hook func(config *C)) error {
	if config == nil {
		return fmt.Errorf("%s: Observe: the Config is nil: give the one that spillway.New gets", of)
	}
	if !add(config, observer, func(config any) { hook(config.(*C)) }) {
		return fmt.Errorf("%s: Observe was called with this Config before, and everything would count twice: call it once",
			of)
	}
	return nil
}

// Observed returns an error if a Channel has not the hooks of an observer.
func Observed(of string, channel, observer any) error {
	if !has(channel, observer) {
		return fmt.Errorf("%s: Watch: the Channel was made without Observe, and nothing that happens in it would be seen: "+
			"call Observe with the Config, before spillway.New gets it", of)
	}
	return nil
}
