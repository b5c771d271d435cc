package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// place is where a step stands on the page: a comment, and the fence behind it, if there is one already.
var place = regexp.MustCompile("(?s)<!-- session: (\\w+) -->\n(?:\n```console\n.*?\n```\n)?")

// onPage returns the page with what the steps show.
func onPage(page string, steps []step) (string, error) {
	shows := map[string]string{}
	n := &normal{names: map[string]string{}}
	for _, s := range steps {
		shows[s.name] = n.of("$ " + s.typed + "\n" + s.seen)
	}
	var missing []string
	page = place.ReplaceAllStringFunc(page, func(found string) string {
		name := place.FindStringSubmatch(found)[1]
		shown, ok := shows[name]
		if !ok {
			missing = append(missing, name)
		}
		return fmt.Sprintf("<!-- session: %s -->\n\n```console\n%s\n```\n", name, shown)
	})
	if len(missing) > 0 {
		return page, fmt.Errorf("the page shows steps that the session does not have: %v", missing)
	}
	return page, nil
}

// normal replaces what differs from run to run.
type normal struct{ names map[string]string }

var (
	times    = regexp.MustCompile(`\d\d-\d\d \d\d:\d\d:\d\d`)
	ids      = regexp.MustCompile(`\b[0-9a-f]{8}\b`)
	server   = regexp.MustCompile(`postgres://.*`)
	node     = regexp.MustCompile(`(?m)^(node +).*$`)
	ages     = regexp.MustCompile(`up to \S+ ago`)
	canaries = regexp.MustCompile(`\d+ of 10 letters failed again`)
	outcomes = regexp.MustCompile(`redriven 10: \d+ succeeded, \d+ failed again, \d+ not heard of`)
	heard    = regexp.MustCompile(`redriven (\d+)0: \d+ succeeded, 0 failed again, \d+ not heard of`)
	soFar    = regexp.MustCompile(`(finished \d+/\d+), \d+ succeeded`)
	again    = regexp.MustCompile(`paused (\d+/\d+), \d+ failed again`)
	numbers  = regexp.MustCompile(`(?m)^ +\d+(  03-01|.*goes on$)`)
	discards = regexp.MustCompile(`discard-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{2}…`)
	after    = regexp.MustCompile(`--after \d+`)
)

// fakes are the ids that the page shows, in the order in which they come.
var fakes = []string{"5f116faa", "c606f0ba", "1f76c636", "7387062a", "891ace74", "858006cb", "2b9aa1f8"}

func (n *normal) of(text string) string {
	text = times.ReplaceAllString(text, "03-01 03:07:21")
	text = server.ReplaceAllString(text, "postgres://ops@db.internal/shop answers in 3ms")
	text = node.ReplaceAllString(text, "${1}shop-1")
	text = ages.ReplaceAllString(text, "up to 1m ago")
	text = canaries.ReplaceAllString(text, "10 of 10 letters failed again")
	text = soFar.ReplaceAllString(text, "$1")
	text = heard.ReplaceAllStringFunc(text, func(found string) string { // nine in ten, at that moment
		tens, _ := strconv.Atoi(heard.FindStringSubmatch(found)[1])
		return fmt.Sprintf("redriven %d: %d succeeded, 0 failed again, %d not heard of", 10*tens, 9*tens, tens)
	})
	text = outcomes.ReplaceAllString(text, "redriven 10: 0 succeeded, 10 failed again, 0 not heard of")
	text = again.ReplaceAllString(text, "paused $1, 10 failed again")
	text = discards.ReplaceAllString(text, "discard-…")
	text = ids.ReplaceAllStringFunc(text, func(id string) string {
		if n.names[id] == "" && len(n.names) < len(fakes) {
			n.names[id] = fakes[len(n.names)]
		}
		return n.names[id]
	})
	text = strings.ReplaceAll(text, "discard-…", "discard-2f9b81c4-7d1e-4a…")
	if strings.HasPrefix(text, "$ redrive audit") {
		last := 351
		text = numbers.ReplaceAllStringFunc(text, func(line string) string {
			last--
			return numbers.ReplaceAllString(line, fmt.Sprintf("%6d$1", last))
		})
		text = after.ReplaceAllString(text, fmt.Sprintf("--after %d", last))
	}
	return text
}
