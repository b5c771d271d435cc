package naming_test

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/naming"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// names are all names of handler billing on topic orders.
func names(s naming.Scheme) string {
	source := naming.Source{Topic: "orders", Handler: "billing", Class: classify.ClassPermanent}
	dead := s.DeadLetterTopic(source)
	all := []string{dead, s.ParkedTopic(dead), s.QuarantineTopic(dead)}
	source.Class = classify.ClassInvalid
	all = append(all, s.DeadLetterTopic(source), s.StageTopic(source))
	source.Delay = 90 * time.Second
	return strings.Join(append(all, s.StageTopic(source)), " ")
}

// Feature D3: the names of every style, and what patterns and Names change.
func TestNames(t *testing.T) {
	const dots = "orders.dlq orders.dlq.parked orders.dlq.quarantine orders.invalid orders.billing.retry orders.billing.retry.1m30s"
	const dashes = "orders-dlq orders-dlq-parked orders-dlq-quarantine orders-invalid orders--billing-retry orders--billing-retry-1m30s"
	for _, row := range []struct {
		scheme naming.Scheme
		want   string
	}{
		{naming.Scheme{}, dots},
		{naming.Scheme{Style: 9}, dots}, // what is no style, until it is refused
		{naming.Scheme{Style: naming.Dashes}, dashes},
		{naming.Scheme{Style: naming.NATS}, dashes},
		{naming.Scheme{DeadLetter: "{topic}-failed"}, strings.NewReplacer("orders.dlq", "orders-failed", "orders.invalid", "orders-failed").Replace(dots)},
		{naming.Scheme{DeadLetter: "dead", Invalid: "bad", Parked: "aside", Quarantine: "{topic}/never"},
			"dead aside dead/never bad orders.billing.retry orders.billing.retry.1m30s"},
		{naming.Scheme{Stage: "{topic}.retry.{delay}", Reentry: "{topic}.again"}, strings.NewReplacer("orders.billing.retry orders.billing.retry.1m30s", "orders.again orders.retry.1m30s").Replace(dots)},
		{naming.Scheme{Names: map[string]string{"orders.dlq": "Orders that failed", "orders.billing.retry.1m30s": "later"}},
			"Orders that failed Orders that failed.parked Orders that failed.quarantine orders.invalid orders.billing.retry later"},
	} {
		err := row.scheme.Validate()
		testkit.Check(t, err == nil || row.scheme.Style == 9, "%+v: %v", row.scheme, err)
		got := names(row.scheme)
		testkit.Check(t, got == row.want, "%+v:\n got %s\nwant %s", row.scheme, got, row.want)
	}
}

// Feature R5: delays are named as people write durations, without a character that a broker could forbid.
func TestDelay(t *testing.T) {
	for delay, want := range map[time.Duration]string{
		1500 * time.Millisecond: "1500ms", 5 * time.Second: "5s", time.Minute: "1m", 90 * time.Second: "1m30s",
		10 * time.Hour: "10h", 90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s", 100 * time.Minute: "1h40m",
		time.Millisecond + time.Microsecond: "1001us", time.Microsecond + 1: "1001ns", 5 * time.Microsecond: "5us",
	} {
		got := (naming.Scheme{Stage: "{delay}"}).StageTopic(naming.Source{Delay: delay})
		testkit.Check(t, got == want, "%s: %q, want %q", delay, got, want)
	}
}

// Feature D12: what is recognised by its name: the topics of letters, and of stages, also where a name has a part less
// or more.
func TestRecognised(t *testing.T) {
	byClass := naming.Scheme{DeadLetter: "{topic}.{class}"}
	perHandler := naming.Scheme{DeadLetter: "{topic}.{handler}.dlq"}
	between := naming.Scheme{DeadLetter: "{topic}.dead.{handler}", Stage: "{delay}/{topic}"}
	one := naming.Scheme{DeadLetter: "dead", Names: map[string]string{"dead": "Dead"}}
	for _, row := range []struct {
		scheme             naming.Scheme
		topic              string
		letters, isWaiting bool
	}{
		{naming.Scheme{}, "orders", false, false},
		{naming.Scheme{}, "dlq", false, false},
		{naming.Scheme{}, "orders.dlq", true, false},
		{naming.Scheme{}, "orders.dlq.parked", true, false},
		{naming.Scheme{}, "orders-dlq", false, false},
		{naming.Scheme{}, "orders.billing.retry.5s", false, true},
		{naming.Scheme{}, "orders.retry.5s", false, true}, // of a scheme that leaves the handler out
		{naming.Scheme{}, "orders.retrying", false, false},
		{naming.Scheme{Style: naming.NATS}, "orders-dlq", true, false},
		{naming.Scheme{Style: naming.NATS}, "orders--billing-retry-5s", false, true},
		{naming.Scheme{Style: naming.NATS}, "orders.dlq", false, false},
		{byClass, "orders.unknown", true, false},
		{byClass, "orders.eu", false, false},
		{perHandler, "orders.billing.dlq", true, false},
		{perHandler, "orders.dlq", true, false}, // of a scheme that leaves the handler out
		{between, "orders.dead.billing", true, false},
		{between, "5s/orders", false, true},
		{one, "Dead", true, false},
	} {
		if l, w := row.scheme.IsDeadLetter(row.topic), row.scheme.IsStage(row.topic); l != row.letters || w != row.isWaiting {
			t.Errorf("%+v: %q: letters %t, stage %t", row.scheme, row.topic, l, w)
		}
	}
}

// Bad input: a scheme whose names would be illegal, or those of two sources or kinds, is an error that names the field.
func TestValidate(t *testing.T) {
	for want, scheme := range map[string]naming.Scheme{
		"Scheme.Style is 9":                          {Style: 9},
		"Scheme.MaxLength is 63":                     {MaxLength: 63},
		`Scheme.DeadLetter is "{topic}"`:             {DeadLetter: "{topic}"},
		`Scheme.Invalid is "{topic}.{delay}"`:        {Invalid: "{topic}.{delay}"},
		`has a brace`:                                {Quarantine: "{Topic}.x"},
		`Scheme.Stage is "{topic}{handler}.x"`:       {Stage: "{topic}{handler}.x"},
		`{topic} is there twice`:                     {Stage: "{topic}.{topic}"},
		`{delay} stands between`:                     {Stage: "{topic}.{delay}.{handler}"},
		`a letter or digit stands beside {delay}`:    {Stage: "{topic}.{handler}.in{delay}"},
		`".dlq" has a character that is not allowed`: {Style: naming.NATS, DeadLetter: "{topic}.dlq"},
		"leaves no room":                             {MaxLength: 64, DeadLetter: "{topic}" + strings.Repeat(".x", 30)},
		"Scheme.DeadLetter and Scheme.Parked are":    {DeadLetter: "dead", Parked: "dead"},
		"for a stage, which is also the name of a":   {DeadLetter: "{topic}.5s"},
		`Names has "" for "orders.dlq"`:              {Names: map[string]string{"orders.dlq": ""}},
		`Names has "x" for "a.dlq" and "b.dlq"`:      {Names: map[string]string{"a.dlq": "x", "b.dlq": "x"}},
		`Names has "a.b" for "orders-dlq": it is lo`: {Style: naming.NATS, Names: map[string]string{"orders-dlq": "a.b"}},
	} {
		if err := scheme.Validate(); err == nil || !strings.HasPrefix(err.Error(), "naming: Scheme") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
