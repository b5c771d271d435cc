package main

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Factor divides every time of the rules: what lasts a minute takes a second.
const Factor = 60

// Longest is the longest limit after that, in seconds: a letter is too old after 15 s, and not after 4 minutes.
const Longest = 15

var (
	duration = regexp.MustCompile(`(for: |\[|offset )(\d+)([smhd])\b`)
	limit    = regexp.MustCompile(`(record: spillway:limit:\w+_seconds\n\s+expr: vector\()(\d+)\)`)
	unit     = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
)

// Hurry returns rules in which each for, keep_firing_for, window and offset is a Factor-th, and each limit in seconds
// too, but at most Longest. Nothing else is changed.
func Hurry(rules string) string {
	rules = duration.ReplaceAllStringFunc(rules, func(text string) string {
		part := duration.FindStringSubmatch(text)
		n, _ := strconv.Atoi(part[2])
		return fmt.Sprintf("%s%dms", part[1], time.Duration(n)*unit[part[3]]/Factor/time.Millisecond)
	})
	return limit.ReplaceAllStringFunc(rules, func(text string) string {
		part := limit.FindStringSubmatch(text)
		n, _ := strconv.Atoi(part[2])
		return fmt.Sprintf("%s%g)", part[1], min(float64(n)/Factor, Longest))
	})
}
