package naming_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/naming"
)

// texts are names of topics and handlers: ordinary ones, ones that join like others, hostile ones and long ones.
func texts() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"", "orders", "billing", "eu.billing", "orders.eu", "a b", "a_b", "a-b", "a.b", "-b", "a-", "--", "a--b", ".", "*", ">", "a/b",
			"../../x", "retry", "5s", "orders.retry.5s", "orders-h0123456789ab", "a-b-h28e7ff3a1b0c", "ünïcode", "\x00\n", "\xff", strings.Repeat("x", 300),
			strings.Repeat("x", 299) + "y", strings.Repeat("é ", 200)}),
		rapid.StringMatching(`[ab.\-_ /]{0,6}`),
		rapid.StringMatching(`[a-z.\-_]{230,260}`),
		rapid.String(),
	)
}

// legal reports whether the broker of a style takes a name.
func legal(style naming.Style, name string) bool {
	if name == "" || name == "." || name == ".." || !utf8.ValidString(name) {
		return false
	}
	most, extra := 249, "._-"
	switch style {
	case naming.NATS:
		most, extra = 200, "_-"
	case naming.Dots, naming.Dashes:
		return len(name) <= most && strings.IndexFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
	}
	return len(name) <= most && strings.IndexFunc(name, func(r rune) bool {
		return r > 'z' || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(extra, r)
	}) < 0
}

// unified is what the broker of a style takes for the same name.
func unified(style naming.Style, name string) string {
	if style == naming.Kafka {
		return strings.ReplaceAll(name, ".", "_")
	}
	return name
}

var schemes = []naming.Scheme{
	{}, {Style: naming.Dashes}, {Style: naming.Kafka}, {Style: naming.NATS},
	{DeadLetter: "{topic}.{handler}.dlq", Invalid: "{topic}.{handler}.invalid"},
	{Style: naming.Kafka, DeadLetter: "{topic}.{handler}.{class}"},
	{Style: naming.NATS, DeadLetter: "LETTERS_{handler}_{topic}", MaxLength: 64},
	{Stage: "{handler}~{topic}~{delay}", Reentry: "{handler}~{topic}~again", DeadLetter: "dead/{topic}/{handler}", Parked: "aside/{topic}", Quarantine: "quarantine/{topic}"},
}

// Feature D3: two sources never share a name, every name is legal, and every dead-letter topic is recognised by its
// name, whatever the names of topics and handlers are.
func TestNamesAreDistinctLegalAndRecognised(t *testing.T) {
	for _, scheme := range schemes {
		testkit.NoError(t, scheme.Validate())
		t.Run(fmt.Sprintf("%+v", scheme), rapid.MakeCheck(func(t *rapid.T) {
			owners := map[string]string{}
			own := func(name, owner string) {
				testkit.Require(t, legal(scheme.Style, name),
					"%s has the name %q (%d bytes), which is not legal", owner, name, len(name))
				name = unified(scheme.Style, name)
				other, taken := owners[name]
				testkit.Require(t, !taken || other == owner, "%s and %s are both %q", owner, other, name)
				owners[name] = owner
			}
			for range rapid.IntRange(1, 3).Draw(t, "sources") {
				source := naming.Source{Topic: texts().Draw(t, "topic"), Handler: texts().Draw(t, "handler"),
					Delay: rapid.SampledFrom([]time.Duration{0, time.Second, 1500 * time.Millisecond, time.Millisecond + time.Microsecond, 5 * time.Second, time.Hour}).Draw(t, "delay"),
					Class: rapid.SampledFrom([]classify.Class{classify.ClassInvalid, classify.ClassPermanent, classify.ClassTransient, classify.ClassUnknown}).Draw(t, "class")}
				for _, source := range append(likenesses(scheme, source), source) {
					if !scheme.IsDeadLetter(source.Topic) { // no live topic may be called so
						checkNames(t, scheme, source, own)
					}
				}
			}
		}))
	}
}

// likenesses are sources that could have the names of source: its topic and handler split elsewhere, or called as a
// name that was changed.
func likenesses(scheme naming.Scheme, source naming.Source) (sources []naming.Source) {
	add := func(topic, handler string) {
		like := source
		like.Topic, like.Handler = topic, handler
		sources = append(sources, like)
	}
	for _, between := range []string{".", "-", "--", "_", "~", "/"} {
		if head, tail, ok := strings.Cut(source.Handler, between); ok {
			add(source.Topic+between+head, tail)
		}
		if at := strings.LastIndex(source.Topic, between); at >= 0 {
			add(source.Topic[:at], source.Topic[at+len(between):]+between+source.Handler)
		}
		for _, name := range []string{scheme.StageTopic(source), scheme.DeadLetterTopic(source)} {
			for _, word := range []string{"retry", "dlq", "invalid"} {
				name, _, _ = strings.Cut(name, between+word)
			}
			add(name, source.Handler)
			if handler, ok := strings.CutPrefix(name, source.Topic+between); ok {
				add(source.Topic, handler)
			}
		}
	}
	return sources
}

// checkNames checks the names of one source. It calls own with each name and what it is of.
func checkNames(t *rapid.T, scheme naming.Scheme, source naming.Source, own func(name, owner string)) {
	live := unified(scheme.Style, source.Topic) // a broker has one topic of such a name
	dead := scheme.DeadLetterTopic(source)
	for name, kind := range map[string]string{dead: "dead letters", scheme.ParkedTopic(dead): "parked", scheme.QuarantineTopic(dead): "quarantine"} {
		distinguished := live
		if strings.Contains(scheme.DeadLetter, "{handler}") {
			distinguished += "\x00" + source.Handler
		}
		class := "failed"
		if source.Class == classify.ClassInvalid {
			class = "invalid"
		}
		if scheme.Invalid == "" && scheme.DeadLetter != "" {
			class = ""
		}
		if strings.Contains(scheme.DeadLetter, "{class}") {
			class = source.Class.String()
		}
		own(name, fmt.Sprintf("%s of %q %s", kind, distinguished, class))
		testkit.Require(t, scheme.IsDeadLetter(name), "%q is not recognised as %s", name, kind)
	}
	stage := scheme.StageTopic(source)
	own(stage, fmt.Sprintf("stage %s of %q %q", source.Delay, live, source.Handler))
	testkit.Require(t, scheme.IsStage(stage) && !scheme.IsDeadLetter(stage),
		"%q is not recognised as a stage", stage)
}
