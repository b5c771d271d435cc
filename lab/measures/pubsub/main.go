// Command pubsub measures what the protection costs on pub/subs that have no adapter of Spillway's, and prints JSON
// lines.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// broker is a pub/sub that is measured.
type broker struct {
	name string
	// open connects, and returns what remove closes.
	open func(ctx context.Context) (*pubsub, error)
}

// pubsub is a broker in use.
type pubsub struct {
	// publisher returns a publisher that confirms, with the settings of the conformance suite.
	publisher func() (message.Publisher, error)
	// bare returns a subscriber as Watermill's module makes it.
	bare func(group string) (message.Subscriber, error)
	// subscriber returns a subscriber with the settings of the conformance suite.
	subscriber func(group string) (message.Subscriber, error)
	// create makes topics. remove removes topics, with what came beside them.
	create, remove func(topics ...string) error
	close          func() error
}

// brokers are all that can be measured.
var brokers = []broker{{"redis", openRedis}, {"nats", openNATS}}

func main() {
	var names []string
	for _, b := range brokers {
		names = append(names, b.name)
	}
	only := flag.String("pubsub", strings.Join(names, ","), "the pub/subs to measure, separated by commas")
	flag.Parse()
	chosen := strings.Split(*only, ",")
	for _, name := range chosen {
		if !slices.Contains(names, name) {
			fmt.Fprintf(os.Stderr, "bench: -pubsub %q: give some of %s\n", name, strings.Join(names, ","))
			os.Exit(2)
		}
	}
	p := plan{rounds: 15, happy: 4_000, deadLetters: 1_000}
	harness.Main(20*time.Minute, func(ctx context.Context, to io.Writer) error {
		for _, b := range brokers {
			if !slices.Contains(chosen, b.name) {
				continue
			}
			if err := p.run(ctx, to, b); err != nil {
				return fmt.Errorf("%s: %w", b.name, err)
			}
		}
		return nil
	})
}
