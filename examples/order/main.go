package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// plan is what happens. A consumer gets it, too.
type plan struct {
	Broker  string   // one of brokers
	Brokers []string // addresses
	Driver  string
	DSN     string
	// ConsumerDSN is the same, with a name by which the connections of consumers are known.
	ConsumerDSN string
	Topic       string
	Seed        uint64

	Messages, Keys, Partitions, Lanes, Consumers int
	// of a hundred messages: fail twice, or until they are dead letters
	Twice, ForGood int
	Kills, Cuts    int
	Stops          bool // by SIGSTOP, beyond the session
	Grow, Restarts bool // partitions are added, and the servers restarted
	Sparse         int  // rounds at the end, see sparse
	SparseFrom     int  // the number of their first message
	Work, Within   time.Duration
	Delays         []time.Duration // of messages that failed

	Bank    string // the address of the demo's downstream
	Without bool   // the order of keys
}

// messages is how many there are by default.
const messages = 20000

func main() {
	if line := os.Getenv(consumes); line != "" {
		var p plan
		err := json.Unmarshal([]byte(line), &p)
		if err == nil {
			err = consume(&p)
		}
		end(err)
		return
	}
	p := plan{Topic: "order-" + strings.ToLower(rand.Text()),
		Delays: []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond}}
	flag.StringVar(&p.Broker, "broker", "kafka", "where the messages come from: kafka, rabbitmq or tables")
	database := flag.String("database", "postgres", "postgres or mariadb")
	flag.IntVar(&p.Messages, "messages", messages, "messages")
	flag.IntVar(&p.Keys, "keys", 50, "keys of messages")
	flag.IntVar(&p.Partitions, "partitions", 4, "partitions of the topic")
	flag.IntVar(&p.Lanes, "lanes", 16, "messages of a partition at the same time")
	flag.IntVar(&p.Consumers, "consumers", 2, "consumers")
	flag.IntVar(&p.Twice, "twice", 5, "of a hundred messages, those that fail twice")
	flag.IntVar(&p.ForGood, "forgood", 1, "of a hundred messages, those that fail for good")
	flag.IntVar(&p.Kills, "kills", 6, "consumers that are killed")
	flag.IntVar(&p.Cuts, "cuts", 20, "times that all connections to PostgreSQL are cut")
	flag.BoolVar(&p.Stops, "stops", true, "stop a consumer beyond its session, too")
	flag.BoolVar(&p.Grow, "grow", false, "add partitions in the middle, if the broker has some")
	flag.BoolVar(&p.Restarts, "restarts", false, "restart the broker and the database, too")
	flag.IntVar(&p.Sparse, "sparse", 3, "rounds at the end: a message in a silence, while parked ones are drained")
	flag.Uint64Var(&p.Seed, "seed", 0, "of what fails and who is killed")
	flag.DurationVar(&p.Work, "work", 2*time.Millisecond, "how long a handler works")
	flag.DurationVar(&p.Within, "within", 10*time.Minute, "for all of it")
	demo := flag.Bool("demo", false, "show it to people, with accounts")
	flag.BoolVar(&p.Without, "without", false, "show what happens to the accounts without Ordered")
	flag.Parse()
	if p.Seed == 0 {
		p.Seed = uint64(time.Now().UnixNano())
	}
	p.SparseFrom = p.Messages
	if *demo || p.Without {
		end(demonstrate(&p))
		return
	}
	end(run(&p, *database))
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "order:", err)
		os.Exit(1)
	}
}

var errBad = errors.New("the order is not kept, see the line")

func run(p *plan, database string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), p.Within)
	defer cancel()
	s, err := prepare(p, database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.remove()) }()
	at := p.Messages
	if _, can := s.broker.(grower); can && p.Grow {
		at /= 2 // the others come when it has grown
	}
	if err := s.broker.produce(0, at); err != nil {
		return err
	}
	begun := time.Now()
	happened, stuck, err := s.disturb(ctx)
	if err != nil {
		return err
	}
	r, err := s.judge()
	if err != nil {
		return err
	}
	r.Database, r.Messages, r.Keys, r.Seed, r.Kills, r.Stops = database, p.Messages, p.Keys, p.Seed, happened["kill"],
		happened["stop"]
	r.Sparse, r.Cuts, r.Grown, r.Restarts = happened["sparse"], happened["cut"], happened["grown"], happened["restart"]
	r.Stuck, r.Seconds = stuck, time.Since(begun).Seconds()
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	if r.Violations+r.Outputs+r.Lost+r.Doubled+r.Stuck > 0 {
		return errBad
	}
	return nil
}
