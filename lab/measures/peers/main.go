// Command peers measures live messages a second of one Kafka partition while some of the messages fail, with Spring
// Kafka, with Watermill's own parts, and with Spillway, and prints JSON lines. All three handle the same topics on the
// same broker, in turns, one message at a time and in order. Each retries a failing message once, after a second, and
// then dead-letters it:
//
//   - Spring Kafka has @RetryableTopic with one retry topic, and the defaults of its consumer and producer: concurrency
//     1, 500 records a poll, offsets committed by batch, acks from all replicas. Its handler takes the record as it is,
//     which is its fastest way. One virtual machine makes all runs, and the first round is not counted, so that it is
//     warm. No consumer reads its dead-letter topic. spring_tuned_per_s is with
//     DefaultErrorHandler.setSeekAfterError(false): by default it fetches the rest of a batch again behind each
//     failure.
//   - Watermill has watermill-kafka with Retry and PoisonQueue, which wait in place.
//   - Spillway has the front door with one stage, in a topic, and the defaults of package wmkafka.
//
// A side that does not come to the end of the messages in time counts with what it managed. Spillway must come to the
// end, with each failing message dead-lettered after the stage.
//
// The figure subscribers is of Watermill's router without any middleware, fed by the least program that is possible
// with sarama (harness.Least), by package wmkafka, and by watermill-kafka.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// waits is what Spring waits by default before a retry.
const waits = time.Second

// plan says how much is measured.
type plan struct {
	rounds, warm int // warm is how many messages are handled before each side of a round, or 0
	payloads     []payload
	shares       []share
	limit        time.Duration // for a side that does not come to the end
	spring       string        // the folder of the Java program; "" leaves Spring out
	only         string        // a figure: subscribers or peers; "" is both
}

// share is how many of the messages fail.
type share struct{ percent, messages int }

func main() {
	p := plan{warm: 100_000, payloads: payloads, shares: []share{{0, 400_000}, {1, 200_000}, {10, 100_000}},
		limit: 12 * time.Second}
	flag.IntVar(&p.rounds, "rounds", 3, "rounds that count")
	flag.StringVar(&p.spring, "spring", "lab/measures/peers/spring/target", "the folder that Maven built; empty "+
		"leaves Spring out")
	flag.StringVar(&p.only, "only", "", "the figure to measure: subscribers or peers; empty measures both")
	flag.Parse()
	harness.Main(time.Hour, p.run)
}

func (p plan) run(ctx context.Context, to io.Writer) (err error) {
	if p.rounds < 1 {
		return fmt.Errorf("-rounds is %d: give 1 or more", p.rounds)
	}
	c, err := harness.Kafka(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	java, err := startSpring(ctx, p.spring, c.Brokers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, java.close()) }()
	warm := &run{topic: "bench-warm-" + watermill.NewShortUUID(), messages: p.warm, limit: time.Minute}
	if err := c.Fill(warm.topic, warm.messages); err != nil {
		return err
	}
	for _, payload := range p.payloads {
		for _, s := range p.shares {
			if p.only == "subscribers" && s.percent > 0 {
				continue
			}
			r := &run{topic: fmt.Sprintf("bench-peers-%d-%d-%s", payload.size, s.percent, watermill.NewShortUUID()),
				messages: s.messages, percent: s.percent, limit: p.limit}
			if err := c.FillWith(r.topic, r.messages, payload.record(r.topic)); err != nil {
				return err
			}
			for _, compared := range []struct {
				name  string
				among func(*harness.Cluster, *spring, *run, *run) (harness.Figure, error)
			}{{"subscribers", p.compareBare}, {"peers", p.compare}} {
				if p.only != "" && p.only != compared.name || compared.name == "subscribers" && s.percent > 0 {
					continue
				}
				figure, err := compared.among(c, java, r, warm)
				if err != nil {
					return fmt.Errorf("%s, %d %% of payloads of %d bytes failing: %w", compared.name, s.percent,
						payload.size, err)
				}
				figure["payload"], figure["headers"] = payload.size, payload.headers
				if err := harness.Print(to, compared.name, figure); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// compare measures all sides in turns.
func (p plan) compare(c *harness.Cluster, spring *spring, r, warm *run) (harness.Figure, error) {
	sides := []func() (float64, error){warmed(c, warm, stock, r), warmed(c, warm, channel, r)}
	if spring != nil {
		sides = append(sides, warmed(c, warm, spring.seeking, r), warmed(c, warm, spring.keeping, r))
	}
	medians, err := harness.Alternate(p.rounds, sides...)
	if err != nil {
		return nil, err
	}
	figure := harness.Figure{"failing_percent": r.percent, "watermill_per_s": harness.Whole(medians[0]),
		"spillway_per_s": harness.Whole(medians[1])}
	if spring != nil {
		figure["spring_per_s"], figure["ratio_to_spring"] = harness.Whole(medians[2]),
			harness.Hundredths(medians[1]/medians[2])
		figure["spring_tuned_per_s"], figure["ratio_to_spring_tuned"] = harness.Whole(medians[3]),
			harness.Hundredths(medians[1]/medians[3])
	}
	return figure, nil
}

// warmed is a side that comes to a broker that was busy just now, unless there is nothing to warm it up with.
func warmed(c *harness.Cluster, warm *run, side func(*harness.Cluster, *run) (float64, error),
	r *run) func() (float64, error) {
	return func() (float64, error) {
		if warm.messages > 0 {
			if _, err := stock(c, warm); err != nil {
				return 0, err
			}
		}
		return side(c, r)
	}
}
