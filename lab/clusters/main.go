package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
)

type plan struct {
	rate   int // messages a second
	lasts  time.Duration
	within time.Duration
	only   string // of the rounds
	keep   bool
}

func main() {
	p := &plan{}
	on := flag.String("on", usual, "clusters, with commas between")
	flag.IntVar(&p.rate, "rate", 100, "messages a second")
	flag.DurationVar(&p.lasts, "lasts", 30*time.Second, "how long a round publishes")
	flag.DurationVar(&p.within, "within", 2*time.Minute, "until each message is settled, behind that")
	flag.StringVar(&p.only, "round", "", "only the rounds whose names have this text")
	flag.BoolVar(&p.keep, "keep", false, "play no round, and keep the cluster until it is interrupted, to try things on it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	_ = mysql.SetLogger(&mysql.NopLogger{}) // connections are broken on purpose
	bad := 0
	for _, name := range strings.Split(*on, ",") {
		n, err := p.play(ctx, name)
		if err != nil {
			fmt.Fprintf(os.Stderr, "clusters: %s: %v\n", name, err)
			bad++
		}
		bad += n
	}
	stop()
	if bad > 0 {
		os.Exit(1)
	}
}

// usual are all clusters.
const usual = "kafka,rabbitmq,postgres,transactions,sessions,mariadb,galera"

var clusters = map[string]func(context.Context, string) (*cluster, error){
	"kafka": kafkaCluster, "rabbitmq": rabbitCluster, "postgres": postgresCluster, "mariadb": mariaCluster,
	"galera":       galeraCluster,
	"transactions": poolerCluster("transaction", "&default_query_exec_mode=cache_describe", 20),
	"sessions":     poolerCluster("session", "", 100),
}

// play plays all rounds on a cluster, and returns how many were bad.
func (p *plan) play(ctx context.Context, name string) (bad int, err error) {
	open, ok := clusters[name]
	if !ok {
		return 0, errors.New("no such cluster: give -on " + usual)
	}
	folder, err := os.MkdirTemp("/var/tmp", "spillway-clusters-") // servers' users reach it
	if err != nil {
		return 0, err
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		return 0, err
	}
	c, err := open(ctx, folder)
	if c != nil {
		defer func() { err = errors.Join(err, c.end(), os.RemoveAll(folder)) }()
	}
	if err != nil {
		return 0, err
	}
	if p.keep {
		fmt.Fprintf(os.Stderr, "clusters: %s is up, in %s\n", c.name, folder)
		<-ctx.Done()
		return 0, nil
	}
	for _, round := range c.rounds {
		if !strings.Contains(round.name, p.only) {
			continue
		}
		result, err := p.round(ctx, c, round)
		if err != nil {
			return bad, fmt.Errorf("%s: %w", round.name, err)
		}
		line, err := json.Marshal(result)
		if err != nil {
			return bad, err
		}
		fmt.Println(string(line))
		if !result.good() {
			bad++
		}
	}
	return bad, nil
}
