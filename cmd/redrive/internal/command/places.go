package command

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/contexts"
)

// place is where settings come from.
type place struct {
	name   string
	values map[string]string
}

const environment = "the environment"

// says reports whether the place says where the letters are.
func (p place) says() bool { return p.values["url"]+p.values["db"] != "" }

// places are where settings come from, the first to ask first.
func (s *config) places(flags *pflag.FlagSet, env func(string) string) ([]place, error) {
	given, around := place{"the flags", map[string]string{}}, place{environment, map[string]string{}}
	for name, setting := range s.names() {
		if flags.Changed(name) {
			given.values[name] = *setting
		}
		if value := env(variable(name)); value != "" {
			around.values[name] = value
		}
	}
	values, named, err := s.read(env)
	if err != nil {
		return nil, err
	}
	file := place{"the file of the configuration", values}
	chosen, err := s.chosen(given, around, file, named, env)
	if err != nil {
		return nil, err
	}
	if chosen == nil {
		return []place{given, around, file}, nil
	}
	return []place{given, *chosen, around, file}, nil
}

// chosen is the context to work in, if there is one: that of --context, that of the environment, or the one in use if
// nothing else says where the letters are.
func (s *config) chosen(given, around, file place, named bool, env func(string) string) (*place, error) {
	name := s.context
	switch {
	case name != "" && given.says():
		return nil, wrong("--context is %q, and --url or --db is given too: give one", name)
	case name != "" || given.says():
	default:
		if name = env("REDRIVE_CONTEXT"); name != "" && around.says() {
			return nil, wrong("REDRIVE_CONTEXT is %q, and REDRIVE_URL or SPILLWAY_DB is set too: unset one, or say --context, "+
				"--url or --db", name)
		}
	}
	if name == "" && (given.says() || around.says() || named && file.says()) {
		return nil, nil
	}
	all, err := contexts.Read()
	if err != nil {
		return nil, coded{err, exitWrong}
	}
	if name == "" {
		name = all.Current
	}
	if name == "" {
		return nil, nil
	}
	c, err := all.Get(name)
	if err != nil {
		return nil, coded{err, exitWrong}
	}
	p := place{"the context " + quoted(name), map[string]string{"url": c.URL, "token-file": c.TokenFile, "ca": c.CA}}
	if c.Config != "" {
		if p.values, err = s.parse(c.Config); err == nil && !p.says() {
			err = wrong("the context is %q, and %s has neither url nor db: add one", name, c.Config)
		}
	}
	return &p, err
}

// target keeps one answer to the question where the letters are: that of the first place that has one. A token goes
// only to the API that it was given for.
func (s *config) target(all []place) error {
	s.url, s.db, s.tokenFile, s.ca = "", "", "", ""
	for i, p := range all {
		if !p.says() {
			continue
		}
		s.url, s.db = p.values["url"], p.values["db"]
		if s.url != "" && s.db != "" {
			return wrong("%s have both a url and a db: give one", p.name)
		}
		from := []place{all[0], p}
		if i == 0 { // --url with a variable for the token
			from = append(from, all[slices.IndexFunc(all, func(p place) bool { return p.name == environment })])
		}
		for name, setting := range map[string]*string{"token-file": &s.tokenFile, "ca": &s.ca} {
			for _, p := range from {
				if value, is := p.values[name]; is {
					*setting = value
					break
				}
			}
		}
		return nil
	}
	return nil
}
