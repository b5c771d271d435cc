package conformance

import (
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/downstream"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// Feature R12, promises P1, P3, P7: while the breaker is open another instance joins, the first is killed, a third
// takes its place, and the second is closed in order, as by a deploy.
func (b *bench) changedWhileOpen() {
	lasts, rate := b.outageLasts()
	b.shared().begin()
	server, err := downstream.New()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Close)
	guarded := func(s *setting) {
		s.Downstream, s.Guarded, s.Stages = server.Addr(), true, []time.Duration{time.Second}
	}
	set := func(mode downstream.Mode) {
		if err := server.Set(mode); err != nil {
			b.Fatal(err)
		}
	}
	first := b.consumer(guarded)
	sent := b.traffic(rate/4, goodOnly)
	b.until("a message is handled", func() bool { return len(b.effects()) > 0 })
	set(downstream.Away)
	first.until("breaker", breaker.Open)
	second := b.consumer(guarded)
	time.Sleep(lasts / 3)
	first.kill()
	b.consumer(guarded)
	time.Sleep(lasts / 3)
	second.stop()
	time.Sleep(lasts / 3)
	set(downstream.Up)
	ids := sent.stop()
	b.untilAllApplied(ids)
	b.wantNoLetters()
	if slices.ContainsFunc(b.processes, func(p *process) bool { return p.events.all("waits") > 0 }) {
		b.Error("a message went to a stage because of the outage")
	}
	b.wrapUp(ids...)
}

// Feature R12, promises P1, P3, P7: the server that holds messages, keys and what the handler writes is killed under
// load, and away for a time.
func (b *bench) serverKilled() {
	lasts, rate := b.outageLasts()
	b.need("Service", b.target.Service != "")
	b.begin()
	b.consumer(func(s *setting) { s.Guarded = true })
	sent := b.traffic(rate/4, goodOnly)
	b.until("a message is handled", func() bool { return len(b.effects()) > 0 })
	if b.target.Service == "rabbitmq" {
		services.KeepQueues(b.T)
	}
	services.Kill(b.T, b.target.Service)
	time.Sleep(lasts)
	down := len(sent.sent())
	services.Start(b.T, b.target.Service)
	b.until("messages are sent after the return", func() bool { return len(sent.sent()) > down })
	ids := sent.stop()
	b.untilAllApplied(ids)
	b.wantNoLetters()
	b.wrapUp(ids...)
}
