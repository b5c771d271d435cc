package prom_test

import (
	"context"
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/observe/prom"
	"github.com/watermill-spillway/spillway/redrive"
)

func Example() {
	registry := prometheus.NewRegistry()
	config := spillway.Config{Publisher: nowhere{}}

	metrics, err := prom.New(prom.Config{Registerer: registry})
	if err != nil {
		log.Fatal(err)
	}
	config.Observers = []spillway.Observer{metrics}
	dlc, err := spillway.New(context.Background(), config)
	if err != nil {
		log.Fatal(err)
	}
	if err := metrics.Watch(context.Background(), dlc); err != nil {
		log.Fatal(err)
	}

	_ = redrive.Rules{Hooks: metrics.Redrives(redrive.Hooks{})} // counts what drains and handlers bring back

	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, family := range families {
		fmt.Println(family.GetName(), family.GetMetric()[0].GetGauge().GetValue())
	}
	// Output:
	// spillway_ok 1
}
