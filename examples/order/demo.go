package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/chart"
)

const (
	unavailable = 4 * time.Second // the bank
	lineEach    = 2 * time.Second
)

// demonstrate shows the order of accounts to people: 5 % of the calls fail twice, the consumer is killed, and the bank
// is unavailable for a while.
func demonstrate(p *plan) (err error) {
	if p.Messages == messages {
		p.Messages = 3200 // as many deposits as withdrawals of each account
	}
	p.Keys, p.Partitions, p.Lanes, p.Consumers = 40, 2, 16, 1
	p.Twice, p.ForGood, p.Work = 5, 0, 15*time.Millisecond
	p.Delays = []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
		// longer than the bank is unavailable, with the two failures of a message
		4 * time.Second, 4 * time.Second, 4 * time.Second}
	bank := p.newBank()
	defer bank.Close()
	ctx, cancel := context.WithTimeout(context.Background(), p.Within)
	defer cancel()
	s, err := prepare(p, "postgres")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.remove()) }()
	if err := errors.Join(p.open(s.db), s.broker.produce(0, p.Messages)); err != nil {
		return err
	}
	screen, _ := chart.Screen()
	d := &demo{setting: s, bank: bank, to: screen, begun: time.Now()}
	stuck, err := d.play(ctx)
	if err != nil {
		return err
	}
	return d.tell(stuck)
}

var errEnded = errors.New("the consumer ended by itself")

type demo struct {
	*setting
	bank  *bank
	to    io.Writer
	begun time.Time
	said  time.Time
}

func (d *demo) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.to, "%5.1f s  %s\n", time.Since(d.begun).Seconds(), fmt.Sprintf(format, args...))
}

// play runs the consumer until all messages are settled, and disturbs it. It returns how many are stuck.
func (d *demo) play(ctx context.Context) (stuck int, err error) {
	with := "with Config.Ordered: behind a failed message its account waits, and no other"
	if d.Without {
		with = "with Config.Stages in place of Config.Ordered: a failed message is overtaken"
	}
	_, _ = fmt.Fprintf(d.to, "%d deposits and withdrawals of %d accounts are on Kafka, and the key of each is its account. A withdrawal takes\n"+
		"what the deposit in front of it brought: before it, there is not enough money. One consumer, 16 messages at a time,\n%s.\n\n",
		d.Messages, d.Keys, with)
	running, err := d.start()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, running.end()) }() // of the last one
	d.say("the consumer starts; %d %% of the calls to the bank fail, twice for each message", d.Twice)
	var back time.Time
	killed, last, moved := false, -1, time.Now()
	for {
		select {
		case <-ctx.Done():
			return max(1, d.Messages-last), nil
		case err := <-running.ended:
			return 0, errors.Join(errEnded, err)
		case <-time.After(100 * time.Millisecond):
		}
		settled, waiting, err := d.settled(ctx)
		if err != nil { // no table yet
			continue
		}
		if settled != last {
			last, moved = settled, time.Now()
		}
		d.line(settled, waiting)
		switch {
		case settled >= d.Messages && waiting == 0:
			d.say("all %d messages are settled", settled)
			return 0, nil
		case time.Since(moved) > 30*time.Second:
			return max(1, d.Messages-settled), nil
		case !killed && settled > d.Messages/4:
			killed = true
			_ = running.Kill()
			<-running.ended
			d.say("the consumer is KILLED, and another one starts; Kafka gives it the partitions when the session of the first ends")
			if running, err = d.start(); err != nil {
				return 0, err
			}
		case back.IsZero() && settled > d.Messages/2:
			d.bank.unavailable.Store(true)
			back = time.Now().Add(unavailable)
			d.say("the bank is AWAY: every call fails")
		case d.bank.unavailable.Load() && time.Now().After(back):
			d.bank.unavailable.Store(false)
			d.say("the bank is back")
		}
	}
}

func (d *demo) line(settled, waiting int) {
	if time.Since(d.said) < lineEach {
		return
	}
	d.said = time.Now()
	if d.Without {
		d.say("%5d settled", settled)
		return
	}
	d.say("%5d settled   %4d wait in spillway_parked", settled, waiting)
}

// outcome is the last line.
type outcome struct {
	Figure     string `json:"figure"`
	Ordered    bool   `json:"ordered"`
	Messages   int    `json:"messages"`
	Applied    int    `json:"applied"`
	OutOfOrder int    `json:"out_of_order"`
	Outputs    int    `json:"outputs_out_of_order"`
	Letters    int    `json:"letters"`
	Wrong      int    `json:"wrong_balances"`
	Lost       int    `json:"lost"`
	Doubled    int    `json:"doubled"`
	Stuck      int    `json:"stuck"`
}

// tell judges, and says what came of it.
func (d *demo) tell(stuck int) error {
	r, err := d.judge()
	if err != nil {
		return err
	}
	o := outcome{Figure: "demo_order", Ordered: !d.Without, Messages: d.Messages, OutOfOrder: r.Violations,
		Outputs: r.Outputs, Letters: r.Letters, Lost: r.Lost, Doubled: r.Doubled, Stuck: stuck}
	if err := d.db.QueryRow(`SELECT (SELECT count(*) FROM accounts WHERE balance <> 0), (SELECT count(DISTINCT id) FROM effects)`).
		Scan(&o.Wrong, &o.Applied); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(d.to, `
counted by id
  %5d messages took effect, %d of them more than once
  %5d took effect after a later one of their account, and %d were published after one
  %5d became dead letters, because there was not enough money
  %5d accounts are not empty, as all should be
  %5d messages are lost, %d are stuck

`, o.Applied, o.Doubled, o.OutOfOrder, o.Outputs, o.Letters, o.Wrong, o.Lost, o.Stuck)
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	if o.Lost+o.Doubled+o.Stuck > 0 || o.Ordered && o.OutOfOrder+o.Outputs+o.Letters+o.Wrong > 0 {
		return errBad
	}
	if d.Without {
		_, _ = fmt.Fprintln(os.Stderr, "With Ordered, \"make demo-order\", the same failures leave all of it in order.")
	}
	return nil
}
