package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/examples/internal/leaks"
	"github.com/watermill-spillway/spillway/examples/measures/harness"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// The sides in Go are measured to the end, and the lines say what is asked for. What they say is not judged here.
func TestFigures(t *testing.T) {
	services.Kafka(t)
	var out strings.Builder
	err := (plan{}).run(t.Context(), &out)
	testkit.Require(t, err != nil && strings.Contains(err.Error(), "-rounds"), "no round counts: %v", err)
	testkit.NoError(t, (plan{rounds: 1, payloads: payloads[:1], shares: []share{{10, 10}}, limit: time.Second}).run(t.Context(), &out))
	testkit.NoError(t, harness.Complete(out.String(), "failing_percent payload watermill_per_s spillway_per_s"))
	out.Reset()
	testkit.NoError(t, (plan{rounds: 1, payloads: payloads[:1], shares: []share{{0, 200}}, limit: time.Second,
		only: "subscribers"}).run(t.Context(), &out))
	testkit.NoError(t, harness.Complete(out.String(), "payload ratio_to_least least_per_s wmkafka_per_s watermill_kafka_per_s "+
		"least_allocs wmkafka_allocs least_cpu_ns wmkafka_cpu_ns"))
}

// The Java program asks for exactly what a request says, and answers what is read. It is not built by the tests.
func TestSpringSource(t *testing.T) {
	files, err := filepath.Glob("spring/src/peers/*.java")
	testkit.Require(t, err == nil && len(files) != 0, "no Java source %v", err)
	var source strings.Builder
	for _, file := range files {
		text := testkit.Must(os.ReadFile(file))
		source.Write(text)
	}
	var asked []string
	for _, found := range regexp.MustCompile(`\$\{(\w+)\}|number\(properties, "(\w+)"\)`).FindAllStringSubmatch(source.String(), -1) {
		asked = append(asked, found[1]+found[2])
	}
	slices.Sort(asked)
	asked = slices.Compact(asked)
	var told []string
	for pair := range strings.FieldsSeq((&spring{brokers: "b"}).request(&run{topic: "t", limit: time.Second}, "id", true)) {
		name, value, _ := strings.Cut(pair, "=")
		testkit.Check(t, value != "", "%s has no value", name)
		told = append(told, name)
	}
	slices.Sort(told)
	testkit.Check(t, slices.Equal(asked, told), "the Java program asks for %q and is told %q", asked, told)
	testkit.Check(t, strings.Contains(source.String(), `"good=" + good + " failures=" + failures.get() + " nanos="`),
		"the answer is not the one that perSecondOf reads")
	if perSecond, err := perSecondOf("good=10 failures=2 nanos=500000000\n"); err != nil || perSecond != 20 {
		t.Error(perSecond, err)
	}
	testkit.Check(t, testkit.Err(perSecondOf("no\n")) != nil, "an answer that is none is read")
	pom := testkit.Must(os.ReadFile("spring/pom.xml"))
	testkit.Check(t, !strings.Contains(string(pom), "<repositor") && strings.Contains(string(pom), "<version>3.3."),
		"the pom names a repository, or another Spring Kafka than 3.3")
}
