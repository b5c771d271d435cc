package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	stories  = 8 // ids that are explained
	sentence = 3 // lines of the logs in each
)

// explain logs what became of the first ids that break a promise, and how to repeat the campaign.
func (c *campaign) explain(r *report, e *evidence) {
	if r.Good() {
		return
	}
	c.tell("%d ids break a promise; %d messages are left in the source", len(r.bad), e.left)
	for i, id := range r.bad {
		if i == stories {
			c.tell("... and %d more", len(r.bad)-stories)
			break
		}
		c.tell("%s: effects %d, outputs %v", id, e.effects[id], e.outputs[id])
		for _, l := range e.letters[id] {
			c.tell("    letter in %s: %s, %s after %d attempts, altered %t: %.300s", l.topic, l.reason, l.class,
				l.attempts,
				l.altered, l.description)
		}
		for _, line := range c.said(id) {
			c.tell("    %s", line)
		}
	}
	c.tell("repeat: go run ./lab/chaos -broker %s -seed %d -messages %d -faults %d", c.name, r.Seed, r.Messages,
		len(c.plan.faults))
}

// said are lines of the consumers' logs that name an id.
func (c *campaign) said(id string) (lines []string) {
	for _, name := range c.logs() {
		file, err := os.Open(name)
		if err != nil {
			continue
		}
		for in := bufio.NewScanner(file); in.Scan() && len(lines) < sentence; {
			if line := in.Text(); strings.Contains(line, id) {
				lines = append(lines, fmt.Sprintf("%s: %.300s", filepath.Base(name), line))
			}
		}
		_ = file.Close()
	}
	return lines
}

// nacked is what wmamqp says of a nack.
const nacked = "(nack)"

// mentions counts the lines of the consumers' logs with a text.
func (c *campaign) mentions(text string) (lines int) {
	for _, name := range c.logs() {
		content, err := os.ReadFile(name)
		if err == nil {
			lines += bytes.Count(content, []byte(text))
		}
	}
	return lines
}
