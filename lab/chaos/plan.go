package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/downstream"
)

// plan is what a seed makes of a campaign: what is published, in which order, and what breaks where.
type plan struct {
	Seed     uint64
	Messages int
	// ids in the order of their publishing. That of a doubled one is there twice.
	ids     []string
	counts  map[string]int // ids by kind
	faults  []fault
	outages bool // of the downstream, which the handler calls
	// pause is how long a publisher waits from one message to the next.
	pause time.Duration
}

const (
	leastMessages = 60      // fewer are no flow that anything could break
	mostMessages  = 1 << 20 // each id is kept in memory
	usualRate     = 100     // messages a second
	shortestFlow  = 12 * time.Second
	leastFaults   = 8
	perFault      = 400  // messages
	brief         = 1000 // messages of a campaign in which all is over soon
	outage        = 7 * time.Second
)

// newPlan plans n messages on a broker and the faults among them: as many as asked for, or by default one in 400
// messages, and 8 at least. With outages, a fault of the downstream comes before every third of these.
func newPlan(seed uint64, messages, faults int, name string, outages bool) (*plan, error) {
	if messages < leastMessages || messages > mostMessages {
		return nil, fmt.Errorf("-messages %d: give %d to %d", messages, leastMessages, mostMessages)
	}
	if faults < 0 || faults > messages/10 {
		return nil, fmt.Errorf("-faults %d: give 0, for the default, or at most one in 10 messages", faults)
	}
	if faults == 0 {
		faults = max(leastFaults, messages/perFault)
	}
	p := &plan{Seed: seed, Messages: messages, counts: map[string]int{}}
	// One source for each thing that is drawn, so that a change of one leaves the others as they were.
	p.order(rand.New(rand.NewPCG(seed, 1)))
	p.breakThings(rand.New(rand.NewPCG(seed, 2)), faults, name)
	p.aim()
	if p.outages = outages; outages {
		p.darken(rand.New(rand.NewPCG(seed, 3)))
	}
	p.pause = max(time.Second/usualRate, shortestFlow/time.Duration(len(p.ids)))
	return p, nil
}

func (p *plan) order(random *rand.Rand) {
	left := p.Messages
	for _, k := range kinds {
		n := min(left, max(k.least, int(k.share*float64(p.Messages))))
		if k.name == healthy {
			n = left
		}
		left -= n
		p.counts[k.name] = n
		for i := range n {
			id := fmt.Sprintf("%s-%06d", k.name, i)
			p.ids = append(p.ids, id)
			if k.name == doubled {
				p.ids = append(p.ids, id)
			}
		}
	}
	random.Shuffle(len(p.ids), func(i, j int) { p.ids[i], p.ids[j] = p.ids[j], p.ids[i] })
	// A deadly message costs some ends of a process, one after another: let them be among the faults, not behind them.
	early := len(p.ids) / 2
	if p.Messages < brief {
		early = len(p.ids) / 8
	}
	for n := range p.counts[deadly] {
		if i := slices.Index(p.ids, fmt.Sprintf("%s-%06d", deadly, n)); i > early {
			j := random.IntN(early)
			p.ids[i], p.ids[j] = p.ids[j], p.ids[i]
		}
	}
	p.gather(random, early)
}

// gather puts neighbours next to one another, in twos and threes.
func (p *plan) gather(random *rand.Rand, early int) {
	p.ids = slices.DeleteFunc(p.ids, func(id string) bool { return kindOf(id).name == neighbour })
	for n := 0; n < p.counts[neighbour]; {
		size := min(3, p.counts[neighbour]-n)
		if p.counts[neighbour]-n == 4 {
			size = 2
		}
		at := random.IntN(early)
		for at > 0 && kindOf(p.ids[at-1]).name == neighbour { // not between others
			at--
		}
		var group []string
		for range size {
			group = append(group, fmt.Sprintf("%s-%06d", neighbour, n))
			n++
		}
		p.ids = slices.Insert(p.ids, at, group...)
	}
}

// aim puts slow messages right before faults, which then find effects that are not committed. Neighbours stay together.
func (p *plan) aim() {
	left := p.faults
	for n := 0; n < p.counts[slow] && len(left) > 0; n++ {
		i, j := slices.Index(p.ids, fmt.Sprintf("%s-%06d", slow, n)), max(0, left[0].at-2)
		for j > 0 && kindOf(p.ids[j]).name == neighbour {
			j--
		}
		p.ids[i], p.ids[j] = p.ids[j], p.ids[i]
		left = left[1:]
	}
}

// draw is a number that belongs to an id and to nothing else.
func draw(seed uint64, id string, n int) int {
	h := seed
	for _, b := range []byte(id) {
		h = (h ^ uint64(b)) * 0x100000001b3
	}
	return rand.New(rand.NewPCG(seed, h)).IntN(n)
}

// The faults.
const (
	kill     = "kill"     // SIGKILL to a consumer
	deploy   = "deploy"   // a new consumer, then SIGTERM to the old one
	freeze   = "freeze"   // SIGSTOP to a consumer, and SIGCONT later
	cut      = "cut"      // a consumer's connections to one server are closed, and new ones refused for a while
	silence  = "silence"  // they stay open, and nothing passes for a while
	database = "database" // SIGKILL to the database, and a start later
	broker   = "broker"   // the same to the broker
	nack     = "nack"     // the queue of outputs nacks for a while
	dark     = "dark"     // the downstream refuses, or asks to wait, for a while
)

// fault is one thing that breaks when so many messages have been published, and heals after a while.
type fault struct {
	what string
	at   int // messages
	// slot is which consumer, for those that break one. toDatabase chooses the connections of cut and silence.
	slot       int
	toDatabase bool
	mode       downstream.Mode // of the downstream, for dark
	lasts      time.Duration
}

func (f fault) String() string {
	switch f.what {
	case database, broker:
		return fmt.Sprintf("%s is killed, and down for %s", f.what, f.lasts)
	case nack:
		return fmt.Sprintf("the queue of outputs nacks for %s", f.lasts)
	case dark:
		return fmt.Sprintf("the downstream is %s for %s", f.mode, f.lasts)
	case cut, silence:
		to := broker
		if f.toDatabase {
			to = database
		}
		return fmt.Sprintf("%s consumer %d from the %s for %s", f.what, f.slot+1, to, f.lasts)
	case freeze:
		return fmt.Sprintf("%s consumer %d for %s", f.what, f.slot+1, f.lasts)
	}
	return fmt.Sprintf("%s consumer %d", f.what, f.slot+1)
}

// breakThings spreads faults over the messages: each sort once, and then by their weights.
func (p *plan) breakThings(random *rand.Rand, n int, name string) {
	onTables := len(serversOf[name]) == 1
	sorts := []string{kill, deploy, freeze, cut, silence, database, broker}
	if onTables {
		sorts = sorts[:len(sorts)-1] // the broker is the database
	}
	weighted := []string{kill, kill, kill, deploy, deploy, deploy, freeze, freeze, cut, cut, silence, database,
		database}
	if !onTables {
		weighted = append(weighted, broker)
	}
	if name == "rabbitmq" {
		sorts, weighted = append(sorts, nack), append(weighted, nack)
	}
	random.Shuffle(len(sorts), func(i, j int) { sorts[i], sorts[j] = sorts[j], sorts[i] })
	between := len(p.ids) / (n + 1)
	for i := range n {
		f := fault{at: (i+1)*between - random.IntN(max(1, between/2)), slot: random.IntN(slots),
			toDatabase: onTables || random.IntN(2) == 0}
		if i < len(sorts) {
			f.what = sorts[i]
		} else {
			f.what = weighted[random.IntN(len(weighted))]
		}
		least, most := 300*time.Millisecond, 8*time.Second
		if f.what == database || f.what == broker {
			least, most = time.Second, 14*time.Second
		}
		if p.Messages < brief {
			most = 3 * time.Second
		}
		if f.what == nack { // longer than the attempts at an output take
			least, most = 2*time.Second, most+2*time.Second
		}
		if f.what == database && i < len(sorts) { // once longer than all attempts and stages together take
			least, most = outage, max(most, outage+time.Second)
		}
		f.lasts = (least + time.Duration(random.Int64N(int64(most-least)))).Round(time.Millisecond)
		p.faults = append(p.faults, f)
	}
}

// darken adds outages of the downstream: one right before every third fault, so that the fault finds a breaker that is
// open.
func (p *plan) darken(random *rand.Rand) {
	// Time-outs and plain errors count until the breaker knows, and in each new process anew. The stages here are too
	// short for that.
	modes := []downstream.Mode{downstream.Unavailable, downstream.Busy}
	random.Shuffle(len(modes), func(i, j int) { modes[i], modes[j] = modes[j], modes[i] })
	least, most := 2*time.Second, 5*time.Second
	if p.Messages >= brief {
		most = 20 * time.Second
	}
	var outages []fault
	for i := range max(1, len(p.faults)/3) {
		outages = append(outages, fault{
			what: dark, at: p.faults[i*3].at - 1, mode: modes[i%len(modes)],
			lasts: (least + time.Duration(random.Int64N(int64(most-least)))).Round(time.Millisecond),
		})
	}
	if p.Messages >= brief {
		outages[0].lasts = time.Minute
	}
	p.faults = append(p.faults, outages...)
	slices.SortStableFunc(p.faults, func(a, b fault) int { return a.at - b.at })
}
