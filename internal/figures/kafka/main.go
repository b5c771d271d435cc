// Command kafka measures what the protection costs on one partition of a real Kafka, and prints JSON lines. Rounds with and
// without alternate, and medians are compared, because the machine is shared.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/services"
)

const (
	rounds      = 7
	happy       = 40_000 // messages of a round that all succeed
	deadLetters = 1_500  // messages of a round that all fail
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run() (err error) {
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
	if err := printHappy(c); err != nil {
		return err
	}
	return printDeadLetter(c)
}

// printHappy compares messages a second of a bare router and of a protected one.
func printHappy(c *cluster) error {
	topic := "figures-happy-" + watermill.NewShortUUID()
	if err := c.fill(topic, happy); err != nil {
		return err
	}
	var bare, protected []float64
	for round := range rounds + 1 {
		without, err := c.consumeBare(topic, happy)
		if err != nil {
			return err
		}
		with, err := c.consume(topic, happy, nil)
		if err != nil {
			return err
		}
		if round > 0 { // the first is to warm up
			bare = append(bare, happy/without.Seconds())
			protected = append(protected, happy/with.Seconds())
		}
	}
	return printLine(map[string]any{
		"figure": "kafka_happy", "bare_per_s": whole(median(bare)), "spillway_per_s": whole(median(protected)),
		"ratio": hundredths(median(protected) / median(bare)),
	})
}

// printDeadLetter compares a message that is set aside, from its delivery to its ack, with one confirmed publish of it.
func printDeadLetter(c *cluster) error {
	var publishes, letters []float64
	for round := range rounds + 1 {
		topic := "figures-dead-" + watermill.NewShortUUID()
		if err := c.fill(topic, deadLetters); err != nil {
			return err
		}
		publish, err := c.publishOneByOne(topic+".plain", deadLetters)
		if err != nil {
			return err
		}
		letter, err := c.consume(topic, deadLetters, errPermanent)
		if err != nil {
			return err
		}
		if round > 0 {
			publishes = append(publishes, publish.Seconds()*1e6/deadLetters)
			letters = append(letters, letter.Seconds()*1e6/deadLetters)
		}
	}
	return printLine(map[string]any{
		"figure": "kafka_dead_letter", "confirmed_publish_us": whole(median(publishes)), "dead_letter_us": whole(median(letters)),
		"ratio": hundredths(median(letters) / median(publishes)),
	})
}

func printLine(figure map[string]any) error {
	line, err := json.Marshal(figure)
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(line))
	return err
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func whole(v float64) int          { return int(v + 0.5) }
func hundredths(v float64) float64 { return float64(int(v*100+0.5)) / 100 }
