package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/watermill-spillway/spillway/examples/api/operator"
)

// command is the command redrive, as a person without the database's password uses it: with an address and a token.
type command struct{ binary, folder, url string }

// build compiles the command, with the tokens of two persons beside it.
func build(url string) (c command, remove func() error, err error) {
	if c.folder, err = os.MkdirTemp("", "spillway-api-"); err != nil {
		return c, nil, err
	}
	c.binary, c.url = filepath.Join(c.folder, "redrive"), url+"/deadletters/"
	out, err := exec.Command("go", "build", "-o", c.binary,
		"github.com/watermill-spillway/spillway/cmd/redrive").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build redrive: %w: %s", err, out)
	}
	for _, name := range []string{"ann", "bob"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(c.folder, name), []byte("token-"+name+"\n"), 0o600))
	}
	return c, func() error { return os.RemoveAll(c.folder) }, err
}

// run runs the command as a person. The code is what it must end with.
func (c command) run(ctx context.Context, person string, code int, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.binary, args...)
	cmd.Env = []string{"HOME=" + c.folder, "REDRIVE_URL=" + c.url, "REDRIVE_TOKEN_FILE=" +
		filepath.Join(c.folder, person)}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	_ = cmd.Run() // the code says how it ended
	if is := cmd.ProcessState.ExitCode(); is != code {
		return nil, fmt.Errorf("redrive %s ended with %d, and not %d: %s%s", strings.Join(args, " "), is, code,
			out.Bytes(),
			said.Bytes())
	}
	return out.Bytes(), nil
}

// lines reads what the command prints with --json.
func lines[T any](out []byte, err error) (all []T, _ error) {
	for line := range bytes.Lines(out) {
		var one T
		if err := json.Unmarshal(line, &one); err != nil {
			return nil, fmt.Errorf("%w: %s", err, line)
		}
		all = append(all, one)
	}
	return all, err
}

type campaign struct {
	ID                            string
	Selected, Redriven, Succeeded int
	FailedAgain                   int `json:"failed_again"`
}

// byCommand closes the incident as operator.Close does, with the command.
func byCommand(ctx context.Context, url string, deploy func()) (r operator.Report, err error) {
	c, remove, err := build(url)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	causes, err := lines[struct{ Cause, Class, Reason string }](c.run(ctx, "ann", 0, "causes", "--json"))
	if err != nil {
		return r, err
	}
	var these []string // flags
	named := map[string]string{}
	for _, one := range causes {
		named[one.Reason] = one.Cause
		switch {
		case one.Class == "invalid":
			named["cut"] = one.Cause
		case one.Reason != "unknown_currency":
			these = append(these, "--cause", one.Cause)
		}
	}
	r.Causes = len(causes)
	if _, err = c.run(ctx, "ann", 0, append([]string{"redrive", "--dry-run"}, these...)...); err != nil {
		return r, err
	}
	if _, err = c.run(ctx, "ann", 5, append([]string{"redrive", "--canary", "5", "--reason", "INC-7: is it over?", "--yes"},
		these...)...); err != nil {
		return r, err
	}
	list := func() ([]campaign, error) { return lines[campaign](c.run(ctx, "ann", 0, "campaigns", "--json")) }
	all, err := list()
	if err != nil || len(all) != 1 {
		return r, errors.Join(fmt.Errorf("there are %d campaigns", len(all)), err)
	}
	r.FailedAgain = all[0].FailedAgain
	if _, err = c.run(ctx, "ann", 0, "cancel", all[0].ID, "--reason", "INC-7: the fix is not out yet",
		"--yes"); err != nil {
		return r, err
	}
	deploy()
	for _, step := range []struct {
		person string
		args   []string
	}{
		{"ann", append([]string{"redrive", "--approval", "--detach", "--reason", "INC-7: the fix is out", "--yes"}, these...)},
		{"bob", []string{"approve", "$newest", "--reason", "INC-7: I agree", "--yes"}},
		{"ann", []string{"watch", "$newest"}},
		{"ann", []string{"redrive", "--cause", named["unknown_currency"], "--edit", `{"currency":"EUR"}`, "--reason",
			"INC-7: the sender wrote EU", "--yes"}},
		{"ann", []string{"discard", "--cause", named["cut"], "--reason", "INC-7: the sender sends them again",
			"--yes"}},
	} {
		if all, err = list(); err != nil {
			return r, err
		}
		for i := range step.args {
			step.args[i] = strings.ReplaceAll(step.args[i], "$newest", all[0].ID)
		}
		if _, err = c.run(ctx, step.person, 0, step.args...); err != nil {
			return r, err
		}
	}
	if all, err = list(); err != nil || len(all) != 3 {
		return r, errors.Join(fmt.Errorf("there are %d campaigns", len(all)), err)
	}
	r.Edited = all[0].Selected
	for _, one := range all[:2] {
		r.Redriven, r.Succeeded = r.Redriven+one.Redriven, r.Succeeded+one.Succeeded
	}
	entries, err := lines[struct{ By string }](c.run(ctx, "ann", 0, "audit", "--newest", "--limit", "1000", "--json"))
	for _, e := range entries {
		if e.By == "ann" {
			r.Entries++
		}
	}
	return r, err
}
