package command

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/connect"
	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/redrive"
)

// drainReport is what drain did.
type drainReport struct {
	ID          string `json:"id"`
	Taken       int    `json:"taken"`
	Redriven    int    `json:"redriven"`
	Quarantined int    `json:"quarantined"`
	Refused     int    `json:"refused"`
	Parked      int    `json:"parked"`
	Failed      int    `json:"failed"`
	Sealed      int    `json:"sealed"`
}

func (a *app) drain() *cobra.Command {
	var chosen choice
	var d drainFlags
	cmd := &cobra.Command{
		Use:   "drain TOPIC",
		Short: "Redrive a dead-letter topic straight from its broker, without a store",
		Long: `drain publishes the letters of a dead-letter topic to the topics that they came from. A letter goes only to a topic of --allow,
whatever its metadata say. What is not chosen, not allowed or not accepted goes to <topic>.parked, and what failed again after
--max-redrives to <topic>.quarantine. The letter is acked after that, so a drain that is interrupted goes on where it was.

drain ends at what waited when it began. If fewer messages came, it says how many, and exits with 5. Each topic has a consumer group of its
own, so drains of several topics do not disturb each other. Two drains of one topic at once do. --dry-run counts what it would do, by cause and target, and takes, publishes and parks nothing. Clients of the broker must reach it from here.`,
		Example: `  redrive drain orders.dlq --broker kafka://kafka-1:9092 --allow orders --dry-run
  redrive drain orders.dlq --broker kafka://kafka-1:9092 --allow orders --rate 50
  redrive drain orders.dlq --allow orders.replay --to orders.replay --max 10
  redrive drain orders.dlq --broker sql --allow orders --yes`,
		Args: arguments(1, 1, "a dead-letter topic"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.drainTopic(cmd.Context(), args[0], &chosen, d)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&d.allow, "allow", nil, "topic that letters may go to (required)")
	f.StringVar(&d.to, "to", "", "publish there instead of each letter's own topic")
	f.Float64Var(&d.rate, "rate", 0, "the largest number of letters per second; 0 is no limit")
	f.IntVar(&d.most, "max", 0, "the largest number of letters; 0 takes all")
	f.IntVar(&d.maxRedrives, "max-redrives", redrive.DefaultMaxRedrives, "redrives after which a letter is quarantined")
	f.StringVar(&d.group, "group", "", "consumer group (default spillway-redrive-TOPIC; a hash ends it if TOPIC is long)")
	f.StringVar(&d.naming, "naming", "dots", "how the service names topics: dots or kafka (<topic>.parked), dashes or "+
		"nats (<topic>-parked)")
	f.DurationVar(&d.idle, "idle", 30*time.Second, "end after this time without a message; longer than a killed "+
		"member's session")
	f.BoolVar(&d.fromBeginning, "from-beginning", false, "begin with the oldest message if the group has no offset on "+
		"Kafka: at its first drain")
	f.BoolVar(&d.dryRun, "dry-run", false, "say what would be done, and do nothing")
	f.BoolVarP(&d.yes, "yes", "y", false, "do not ask")
	chosen.flags(cmd, a.process.In, false)
	return cmd
}

type drainFlags struct {
	allow       []string
	to, group   string
	naming      string
	rate        float64
	most        int
	maxRedrives int
	idle        time.Duration
	dryRun, yes bool

	fromBeginning bool
}

func (a *app) drainTopic(ctx context.Context, topic string, chosen *choice, d drainFlags) error {
	if len(d.allow) == 0 {
		return wrong("--allow is empty: name the topics that letters may go to, because a letter's own metadata can be forged")
	}
	if d.to != "" && !slices.Contains(d.allow, d.to) {
		return notAllowed(d.to)
	}
	var fast error
	if !(d.rate >= 0 && d.rate <= math.MaxFloat64) {
		fast = wrong("--rate is %v letters per second: it must not be negative; 0 is no limit", d.rate)
	}
	if err := cmp.Or(fast, notNegative("--max", d.most), within("--max-redrives", d.maxRedrives, 1, math.MaxInt),
		notNegative("--idle", d.idle)); err != nil {
		return err
	}
	f, err := chosen.ofTopic()
	if err != nil {
		return err
	}
	if err := a.unlock(); err != nil {
		return err
	}
	styles := []naming.Style{naming.Dots, naming.Dashes, naming.Kafka, naming.NATS}
	style := slices.IndexFunc(styles, func(s naming.Style) bool { return s.String() == d.naming })
	if style < 0 {
		return wrong("--naming is %q: give dots, dashes, kafka or nats", d.naming)
	}
	broker, err := a.brokerOf(ctx, "")
	if err != nil {
		return err
	}
	if d.group == "" {
		d.group = groupOf(topic)
	}
	sub, err := broker.Subscriber(d.group)
	if err != nil {
		return err
	}
	a.closers = append(a.closers, sub.Close)
	config := redrive.DrainTopicConfig{
		Rules: redrive.Rules{
			Allow: d.allow, To: d.to, Filter: f, Rate: d.rate, MaxRedrives: d.maxRedrives, By: a.settings.by,
			Seal: a.sealer, Naming: naming.Scheme{Style: styles[style]}, Shared: observe.Shared{Logger: a.logger()},
		},
		Topic: topic, Park: broker, Max: d.most, IdleAfter: d.idle, FromBeginning: d.fromBeginning,
	}
	if d.dryRun {
		plan, err := hidden.Of((*redrive.Handler)(nil)).PlanTopic(ctx, sub, config)
		if err != nil {
			return err
		}
		if err := begun(ctx, sub, topic, d); err != nil {
			a.screen.Note("%v", err)
		}
		return a.topicPlan(topic, plan)
	}
	if err := begun(ctx, sub, topic, d); err != nil {
		return err
	}
	waiting, err := sub.Backlog(ctx, topic)
	if err != nil {
		return err
	}
	if waiting == 0 {
		return none("no message waits in %q for the consumer group %q", topic, d.group)
	}
	if err := a.confirm(d.yes, "redrive %s of %s to %s%s?", several(atMost(waiting, d.most), "message"), topic, d.target(),
		atRate(d.rate)); err != nil {
		return err
	}
	config.Backlog = func(context.Context, string) (int, error) { return waiting, nil }
	report, err := redrive.DrainTopic(ctx, sub, broker, config)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: most likely another member joined or left the consumer group %q: run it again, or give "+
			"--group another one", err, d.group)
	}
	return a.drained(report, atMost(waiting, d.most), err)
}

// begun returns an error if the drain would begin with the oldest message, and that was not chosen.
func begun(ctx context.Context, sub connect.Subscriber, topic string, d drainFlags) error {
	of, is := hidden.In[inside.Group](sub)
	if !is || d.fromBeginning {
		return nil
	}
	has, err := of.Begun(ctx, topic)
	if err != nil || has {
		return err
	}
	return wrong("the consumer group %q has no offset in %q: this is its first drain, or its offsets are gone, and then "+
		"letters of earlier drains would be redriven again: give --from-beginning to begin with the oldest message, or "+
		"give the group its offsets again with Kafka's tools", d.group, topic)
}

// maxGroup is how long a consumer group's name may be on every broker: Kafka has 32767 bytes for it, watermill-sql 255.
const maxGroup = 200

// groupOf returns a consumer group for the drains of one topic: a member that joins a group disturbs all of its topics.
func groupOf(topic string) string {
	group := "spillway-redrive-" + topic
	if len(group) <= maxGroup {
		return group
	}
	sum := sha256.Sum256([]byte(topic))
	end := fmt.Sprintf("-%x", sum[:8])
	return strings.ToValidUTF8(group[:maxGroup-len(end)], "") + end
}

// drained says what was done of the messages that waited.
func (a *app) drained(r redrive.Report, waiting int, err error) error {
	err = errors.Join(err, a.answer(drainReport{r.ID, r.Taken, r.Redriven, r.Quarantined, r.Refused, r.Parked, r.Failed,
		r.Sealed}, "redriven %d, parked %d, quarantined %d, refused %d, failed %d; id %s", r.Redriven, r.Parked, r.Quarantined,
		r.Refused, r.Failed, r.ID))
	switch {
	case err != nil:
		return err
	case r.Taken < waiting:
		return partly("%d of %s taken: another consumer of the group has the others, or the session of a killed one has "+
			"not ended: run it again", r.Taken, several(waiting, "message"))
	case r.Sealed > 0:
		return partly("%s did not open and are in the topic with .parked behind its name: %w: redrive help sealing says "+
			"how to give keys", several(r.Sealed, "letter"), r.SealError)
	case r.Refused+r.Failed > 0:
		return partly("%s not redriven: see the dead-letter topic with .parked behind its name",
			several(r.Refused+r.Failed, "letter"))
	}
	return nil
}

func (d drainFlags) target() string {
	if d.to != "" {
		return d.to
	}
	return fmt.Sprint(d.allow)
}

func atMost(n, most int) int {
	if most > 0 && most < n {
		return most
	}
	return n
}

func atRate(rate float64) string {
	if rate == 0 {
		return ""
	}
	return fmt.Sprintf(" at %g/s", rate)
}

// topicPlan prints what a drain of a topic would do.
func (a *app) topicPlan(topic string, p inside.TopicPlan) error {
	if a.json {
		return a.screen.JSON(p)
	}
	line := "would redrive " + several(p.Letters, "letter") + " of " + several(p.Messages, "message")
	if p.Takes > 0 {
		line += ", in " + rounded(time.Duration(p.Takes))
	}
	a.screen.Styled(screen.Bold, "%s", line)
	for _, other := range []struct {
		n              int
		do, what, them string
	}{
		{p.Quarantine, "quarantine", "letter", "failed again too often"},
		{p.Refused, "park", "letter", "a topic that --allow does not name"},
		{p.NotChosen, "park", "letter", "not chosen"},
		{p.NoLetters, "park", "message", "no letter"},
	} {
		if other.n > 0 {
			a.screen.Line("would %s %s: %s", other.do, several(other.n, other.what), other.them)
		}
	}
	if p.Messages == 0 {
		return none("no message waits in %q", topic)
	}
	if len(p.RefusedTopics) > 0 {
		a.histogram("not allowed", p.Refused, len(p.RefusedTopics), func(i int) (string, int) {
			return p.RefusedTopics[i].Topic, p.RefusedTopics[i].Letters
		})
	}
	if p.Letters == 0 {
		return none("nothing would be redriven")
	}
	a.targetsAndCauses(p.Letters, p.Targets, p.Causes)
	a.screen.Head("sample")
	t := &screen.Table{Columns: []screen.Column{
		{Name: "FIRST FAILED", Style: screen.Dim, Drop: 1}, {Name: "TO", Min: 8}, {Name: "HANDLER", Min: 8, Drop: 2},
		{Name: "ID", Min: 8}, {Name: "DESCRIPTION", Min: 16},
	}}
	for _, l := range p.Sample {
		t.Row(a.when(l.Failure.FirstFailedAt), l.Target, l.Origin.Handler, l.Original.UUID, l.Failure.Description)
	}
	a.screen.Table(t)
	return nil
}
