package naming

import (
	"slices"
	"strings"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/upstream/topicname"
)

// Inside is for the other packages of Spillway.
func (s Scheme) Inside() topicname.Inside[Source] { return inside{s} }

type inside struct{ Scheme }

func (s inside) IsDeadLetter(topic string) bool {
	topic = s.byPattern(topic)
	return matches(s.deadLetter(), topic) || matches(s.invalid(), topic) || matches(s.parked(), topic) ||
		matches(s.quarantine(), topic)
}

func (s inside) IsStage(topic string) bool {
	topic = s.byPattern(topic)
	return matches(s.stage(), topic) || matches(s.reentry(), topic)
}

func (s inside) StagePrefix(topic string) string {
	var b strings.Builder
	for _, p := range parse(s.stage()) {
		switch {
		case p.holds && p.text != "topic":
			return b.String()
		case p.holds:
			b.WriteString(topic)
		default:
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// byPattern is the name that Names replaces with topic.
func (s Scheme) byPattern(topic string) string {
	for name, given := range s.Names {
		if given == topic {
			return name
		}
	}
	return topic
}

// matches reports whether topic begins and ends as the names of pattern do. If nothing but a delay stands there, the
// text beside the delay counts, and at last the text between topic and handler.
func matches(pattern, topic string) bool {
	if strings.Contains(pattern, "{class}") {
		for class := range classify.ClassDiscard {
			if matches(strings.ReplaceAll(pattern, "{class}", class.String()), topic) {
				return true
			}
		}
		return false
	}
	first, last := strings.IndexByte(pattern, '{'), strings.LastIndexByte(pattern, '}')
	if first < 0 || last < first {
		return topic == pattern
	}
	head, tail := pattern[:first], pattern[last+1:]
	if head == "" && tail == "" {
		return matchesAll(ends(parse(pattern)), topic)
	}
	return len(topic) >= len(head)+len(tail) && strings.HasPrefix(topic, head) && strings.HasSuffix(topic, tail)
}

// ends leaves out what stands between topic and handler, if there is text elsewhere.
func ends(parts []part) []part {
	isName := func(p part) bool { return p.holds && p.text != "delay" }
	first, last := slices.IndexFunc(parts, isName), len(parts)-1
	for last >= 0 && !isName(parts[last]) {
		last--
	}
	if first < 0 || first == 0 && last == len(parts)-1 {
		return parts
	}
	return slices.Concat(parts[:first+1], parts[last+1:])
}

// matchesAll reports whether topic has every text of a pattern, in its order.
func matchesAll(parts []part, topic string) bool {
	for i, p := range parts {
		if p.holds {
			continue
		}
		at := strings.Index(topic, p.text)
		if i == len(parts)-1 && strings.HasSuffix(topic, p.text) {
			at = len(topic) - len(p.text)
		}
		if at < 0 || i == 0 && at > 0 || i == len(parts)-1 && at+len(p.text) < len(topic) {
			return false
		}
		topic = topic[at+len(p.text):]
	}
	return topic == "" || len(parts) > 0 && parts[len(parts)-1].holds
}

func (s inside) StageGroup(source Source) string {
	return Scheme{Style: s.Style, MaxLength: s.MaxLength}.StageTopic(source)
}
