package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// session is the night on call.
type session struct {
	terminal *terminal
	setting  crash.Setting
	serving  *crash.Process
	all      *campaigns.Campaigns
	rate     int // letters per second of the campaign
	steps    []step
	result   *result
}

// play does what the person on call does. applied waits until so many messages took effect.
func (s *session) play(ctx context.Context, applied func(missing ...kind) error) error {
	causes, err := s.lookAround()
	if err != nil {
		return err
	}
	bugs := []string{"--cause", causes["no_repository"].hash, "--cause", causes["panic"].hash}
	if err := s.tryTooEarly(ctx, bugs); err != nil {
		return err
	}
	if err := s.deploy(); err != nil {
		return err
	}
	if err := s.bringBack(ctx, bugs); err != nil {
		return err
	}
	unknown := causes["unknown_action"]
	if err := s.types(0, "edit", "redrive", "--cause", unknown.hash, "--edit", `{"action":"opened"}`, "--reason",
		"INC-7: typo of the sender", "--yes"); err != nil {
		return err
	}
	if err := s.types(0, "discard", "discard", "--cause", causes["invalid"].hash, "--reason",
		"INC-7: cut by the proxy, "+
			"sent again by hand", "--yes"); err != nil {
		return err
	}
	if err := applied(cutShort); err != nil {
		return err
	}
	if err := s.hear(ctx); err != nil {
		return err
	}
	return s.handOver()
}

// lookAround is what the person sees first. It returns the causes by their reasons.
func (s *session) lookAround() (map[string]cause, error) {
	if err := s.types(0, "doctor", "doctor"); err != nil {
		return nil, err
	}
	if err := s.types(0, "causes", "causes"); err != nil {
		return nil, err
	}
	causes, err := s.causes()
	if err != nil {
		return nil, err
	}
	s.result.Causes = len(causes)
	for _, c := range causes {
		s.result.DeadLettered += c.count
	}
	if err := s.types(0, "show", "show", fmt.Sprint(causes["unknown_action"].example)); err != nil {
		return nil, err
	}
	return causes, s.types(0, "cause", "cause", causes["no_repository"].hash, "--owner", "ann", "--note",
		"the fix is in review", "--link", "https://tickets/7", "--reason", "INC-7: mine")
}

// redriveOf is the command that redrives causes.
func redriveOf(causes []string, more ...string) []string {
	return slices.Concat([]string{"redrive"}, causes, more)
}

// tryTooEarly redrives before the fix is out: the canary fails, and the campaign stops itself.
func (s *session) tryTooEarly(ctx context.Context, bugs []string) error {
	if err := s.types(0, "dryrun", redriveOf(bugs, "--rate", fmt.Sprint(s.rate), "--dry-run")...); err != nil {
		return err
	}
	if err := s.types(5, "canary", redriveOf(bugs, "--canary", "10", "--reason", "INC-7: is it over?", "--yes")...); err != nil {
		return err
	}
	paused, err := s.all.List(ctx, campaigns.List{States: []campaigns.State{campaigns.Paused}})
	if err != nil || len(paused) != 1 {
		return errors.Join(fmt.Errorf("%d campaigns stopped themselves, and 1 was expected", len(paused)), err)
	}
	s.result.FailedAgain = paused[0].FailedAgain
	return s.types(0, "cancel", "cancel", paused[0].ID[:8], "--reason", "INC-7: the fix is not out yet", "--yes")
}

// bringBack redrives after the fix. The service is killed half-way.
func (s *session) bringBack(ctx context.Context, bugs []string) error {
	halfWay := func() error {
		for ctx.Err() == nil {
			running, err := s.all.List(ctx, campaigns.List{States: []campaigns.State{campaigns.Running}})
			if err != nil {
				return err
			}
			if len(running) == 1 && 2*running[0].Redriven >= running[0].Selected {
				if err := s.serving.Kill(); err != nil {
					return err
				}
				s.result.Killed++
				s.serving, err = crash.Start(s.setting, "-serve")
				return err
			}
			time.Sleep(10 * time.Millisecond)
		}
		return context.Cause(ctx)
	}
	step, err := s.terminal.meanwhile(0, "redrive", halfWay, redriveOf(bugs, "--rate", fmt.Sprint(s.rate),
		"--reason", "INC-7: the fix is out", "--yes")...)
	s.steps = append(s.steps, step)
	return err
}

// hear waits until it is known of each letter that came back that its message was handled.
func (s *session) hear(ctx context.Context) error {
	for {
		finished, err := s.all.List(ctx, campaigns.List{States: []campaigns.State{campaigns.Finished}})
		if err != nil {
			return err
		}
		redriven, succeeded := 0, 0
		for _, c := range finished {
			redriven, succeeded = redriven+c.Redriven, succeeded+c.Succeeded
		}
		if redriven == succeeded {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d letters are known to have succeeded: %w", succeeded, redriven,
				context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// handOver is what the person looks at in the end.
func (s *session) handOver() error {
	if err := s.types(0, "closed", "causes"); err != nil {
		return err
	}
	if err := s.types(0, "campaigns", "campaigns"); err != nil {
		return err
	}
	return s.types(0, "audit", "audit", "--kind", "discarded", "--kind", "edited", "--newest", "--limit", "5")
}

// types runs a command that must end with a code, and keeps it.
func (s *session) types(code int, name string, args ...string) error {
	step, err := s.terminal.ok(code, name, args...)
	s.steps = append(s.steps, step)
	return err
}

// cause is what the session needs of one.
type cause struct {
	hash           string
	count, example int
}

// causes asks for them as a program does.
func (s *session) causes() (map[string]cause, error) {
	cmd := exec.Command(s.terminal.binary, "causes", "--json")
	cmd.Env = s.terminal.env
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	all := map[string]cause{}
	for line := range strings.Lines(string(out)) {
		var c struct {
			Cause, Class, Reason string
			Count, Example       int
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return nil, err
		}
		name := c.Reason
		if c.Class == "invalid" {
			name = c.Class
		}
		all[name] = cause{c.Cause[:8], c.Count, c.Example}
	}
	return all, nil
}
