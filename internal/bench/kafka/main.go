// Command kafka measures what the protection costs on one partition of a real Kafka, and prints JSON lines. Rounds with and
// without alternate, and medians are compared, because the machine is shared.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/services"
)

// plan says how much is measured.
type plan struct {
	rounds      int
	happy       int // messages of a round that all succeed
	deadLetters int // messages of a round that all fail
}

func main() {
	if err := run(plan{rounds: 15, happy: 40_000, deadLetters: 1_500}, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(p plan, to io.Writer) (err error) {
	brokers, err := services.Lookup("kafka")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	c, err := newCluster(ctx, strings.Split(brokers, ","))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for _, measure := range []func(*cluster, plan) (map[string]any, error){happy, deadLetter} {
		figure, err := measure(c, p)
		if err != nil {
			return err
		}
		line, err := json.Marshal(figure)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(to, string(line)); err != nil {
			return err
		}
	}
	return nil
}

// happy compares messages a second of a bare router and of a protected one.
func happy(c *cluster, p plan) (map[string]any, error) {
	topic := "figures-happy-" + watermill.NewShortUUID()
	if err := c.fill(topic, p.happy); err != nil {
		return nil, err
	}
	var bare, protected []float64
	for round := range p.rounds + 1 {
		without, err := c.consumeBare(topic, p.happy)
		if err != nil {
			return nil, err
		}
		with, err := c.consume(topic, p.happy, nil)
		if err != nil {
			return nil, err
		}
		if round > 0 { // the first is to warm up
			bare = append(bare, float64(p.happy)/without.Seconds())
			protected = append(protected, float64(p.happy)/with.Seconds())
		}
	}
	return map[string]any{
		"figure": "kafka_happy", "bare_per_s": whole(median(bare)), "spillway_per_s": whole(median(protected)),
		"ratio": hundredths(median(protected) / median(bare)),
	}, nil
}

// deadLetter compares a message that is set aside, from its delivery to its ack, with one confirmed publish of it.
func deadLetter(c *cluster, p plan) (map[string]any, error) {
	var publishes, letters []float64
	for round := range p.rounds + 1 {
		topic := "figures-dead-" + watermill.NewShortUUID()
		if err := c.fill(topic, p.deadLetters); err != nil {
			return nil, err
		}
		publish, err := c.publishOneByOne(topic+".plain", p.deadLetters)
		if err != nil {
			return nil, err
		}
		letter, err := c.consume(topic, p.deadLetters, errPermanent)
		if err != nil {
			return nil, err
		}
		if round > 0 {
			publishes = append(publishes, publish.Seconds()*1e6/float64(p.deadLetters))
			letters = append(letters, letter.Seconds()*1e6/float64(p.deadLetters))
		}
	}
	return map[string]any{
		"figure": "kafka_dead_letter", "confirmed_publish_us": whole(median(publishes)), "dead_letter_us": whole(median(letters)),
		"ratio": hundredths(median(letters) / median(publishes)),
	}, nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func whole(v float64) int          { return int(v + 0.5) }
func hundredths(v float64) float64 { return float64(int(v*100+0.5)) / 100 }
