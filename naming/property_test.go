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
	{Style: naming.NATS, DeadLetter: "dead-{handler}_{topic}", MaxLength: 64},
	{Stage: "{handler}~{topic}~{delay}", Reentry: "{handler}~{topic}~again", DeadLetter: "dead/{topic}/{handler}", Parked: "aside/{topic}", Quarantine: "quarantine/{topic}"},
}

// Feature D3: two sources never share a name, every name is legal, and every dead-letter topic is recognised by its name, whatever the names of topics
// and handlers are.
func TestNamesAreDistinctLegalAndRecognised(t *testing.T) {
	for _, scheme := range schemes {
		if err := scheme.Validate(); err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprintf("%+v", scheme), rapid.MakeCheck(func(t *rapid.T) {
			owners := map[string]string{}
			own := func(name, owner string) {
				if !legal(scheme.Style, name) {
					t.Fatalf("%s has the name %q (%d bytes), which is not legal", owner, name, len(name))
				}
				name = unified(scheme.Style, name)
				if other, taken := owners[name]; taken && other != owner {
					t.Fatalf("%s and %s are both %q", owner, other, name)
				}
				owners[name] = owner
			}
			for range rapid.IntRange(2, 12).Draw(t, "sources") {
				source := naming.Source{Topic: texts().Draw(t, "topic"), Handler: texts().Draw(t, "handler"),
					Delay: rapid.SampledFrom([]time.Duration{0, time.Second, 1500 * time.Millisecond, time.Millisecond + time.Microsecond, 5 * time.Second, time.Hour}).Draw(t, "delay"),
					Class: rapid.SampledFrom([]classify.Class{classify.ClassInvalid, classify.ClassPermanent, classify.ClassTransient, classify.ClassUnknown}).Draw(t, "class")}
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
					if !scheme.IsDeadLetter(name) || (name != dead) != scheme.IsSetAside(name) {
						t.Fatalf("%q is not recognised as %s", name, kind)
					}
				}
				stage := scheme.StageTopic(source)
				own(stage, fmt.Sprintf("stage %s of %q %q", source.Delay, live, source.Handler))
				if !scheme.IsStage(stage) || scheme.IsDeadLetter(stage) {
					t.Fatalf("%q is not recognised as a stage", stage)
				}
				if group := scheme.StageGroup(source); scheme.Stage == "" && group != stage {
					t.Fatalf("%q is read by the group %q", stage, group)
				}
			}
		}))
	}
}
