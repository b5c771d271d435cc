package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
)

// report is the line of a run.
type report struct {
	Figure   string `json:"figure"`
	Broker   string `json:"broker"`
	Database string `json:"database"`
	Seed     uint64 `json:"seed"`
	Messages int    `json:"messages"`
	Keys     int    `json:"keys"`
	Kills    int    `json:"kills"`
	Stops    int    `json:"stops"`
	Cuts     int    `json:"cuts"`
	Grown    int    `json:"partitions_added"` // times
	Restarts int    `json:"servers_restarted"`
	Sparse   int    `json:"sparse_rounds"`
	Letters  int    `json:"letters"`
	// Violations are effects that took place after the effect of a later message of their key, and Outputs are outputs
	// that appeared first after those of a later one.
	Violations int `json:"violations"`
	Outputs    int `json:"violations_of_outputs"`
	// Lost have neither effect nor letter, or an effect without output. Doubled took effect more than once. Stuck are
	// not settled in time.
	Lost    int     `json:"lost"`
	Doubled int     `json:"doubled"`
	Stuck   int     `json:"stuck"`
	Seconds float64 `json:"seconds"`

	quiet bool
}

func (s *setting) judge() (*report, error) {
	r := &report{Figure: "order", Broker: s.Broker, quiet: s.Without}
	rows, err := s.db.Query(`SELECT id, lane, number FROM effects ORDER BY n`)
	if err != nil {
		return nil, err
	}
	seen, latest := map[string]int{}, map[string]int{}
	for rows.Next() {
		var id, lane string
		var number int
		if err := rows.Scan(&id, &lane, &number); err != nil {
			return nil, err
		}
		if seen[id]++; seen[id] > 1 {
			r.Doubled++
			r.tell(id, "took effect again")
		}
		if before, ok := latest[lane]; ok && before > number {
			r.Violations++
			r.tell(id, fmt.Sprintf("took effect after %d", before))
		}
		latest[lane] = max(latest[lane], number)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, err
	}
	published, err := s.readOutputs(r)
	if err != nil {
		return nil, err
	}
	letters := map[string]bool{}
	ids, err := s.db.Query(`SELECT DISTINCT id FROM spillway_dead_letters`)
	if err != nil {
		return nil, err
	}
	for ids.Next() {
		var id []byte
		if err := ids.Scan(&id); err != nil {
			return nil, err
		}
		letters[string(id)] = true
	}
	r.Letters = len(letters)
	for n := range s.Messages {
		id := s.idOf(n)
		if seen[id] == 0 && !letters[id] || seen[id] > 0 && !published[id] {
			r.Lost++
			r.tell(id, "is lost")
		}
	}
	return r, errors.Join(ids.Err(), ids.Close())
}

func (r *report) tell(id, what string) {
	if !r.quiet {
		fmt.Fprintln(os.Stderr, id, what)
	}
}

// readOutputs judges their order, and returns the ids.
func (s *setting) readOutputs(r *report) (published map[string]bool, err error) {
	published, latest := map[string]bool{}, map[string]int{}
	return published, s.broker.published(func(out output) error {
		number, err := strconv.Atoi(out.number)
		if err != nil {
			return err
		}
		if before, ok := latest[out.lane]; ok && before > number && !published[out.id] {
			r.Outputs++
			r.tell(out.id, fmt.Sprintf("was published after %d", before))
		}
		published[out.id] = true
		latest[out.lane] = max(latest[out.lane], number)
		return nil
	})
}
