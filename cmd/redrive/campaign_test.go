package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/creack/pty"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// target is a publisher that keeps what it takes. Then, if set, is what a consumer does with it.
type target struct {
	mu    sync.Mutex
	taken []*message.Message
	then  func(*message.Message) error
}

// messages returns what was taken.
func (o *target) messages() []*message.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.taken)
}

func (o *target) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		o.mu.Lock()
		o.taken = append(o.taken, msg)
		o.mu.Unlock()
		if o.then != nil {
			if err := o.then(msg); err != nil {
				return err
			}
		}
	}
	return nil
}

func (*target) Close() error { return nil }

func (o *target) all() (ids []string) {
	for _, msg := range o.messages() {
		ids = append(ids, msg.UUID)
	}
	return slices.Sorted(slices.Values(ids))
}

// works runs a worker of the service until the test ends.
func (s *shop) works(to *target) {
	s.t.Helper()
	all := s.campaigns()
	worker := testkit.Must(campaigns.NewWorker(all, to, campaigns.WorkerConfig{Poll: 10 * time.Millisecond}))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		testkit.NoError(s.t, <-done)
	})
}

func (s *shop) campaigns() *campaigns.Campaigns {
	s.t.Helper()
	return testkit.Must(campaigns.New(s.t.Context(), s.store, campaigns.Config{Allow: []string{"orders"}}))
}

// Feature V10: a dry run says what would be done, to people, pipes and programs, and does nothing.
func TestDryRun(t *testing.T) { bothWays(t, incident(), testDryRun) }

func testDryRun(t *testing.T, s *shop) {
	args := []string{"redrive", "--all", "--dry-run", "--rate", "2", "--set", "tenant=\x1b[31m", "--edit", `{"amount":1}`}
	golden(t, "dryrun.pipe", s.pipe(args...).out)
	golden(t, "dryrun.80", s.terminal(80, "", args...).out)
	golden(t, "dryrun.200", s.terminal(200, "", append(args, "--color", "never")...).out)
	obeyed(t, "the dry run", s.terminal(200, "", append(args, "--color", "never")...).out)
	var plan operate.PlanData
	err := json.Unmarshal([]byte(s.pipe(append(args, "--json")...).out), &plan)
	testkit.Check(t, err == nil && plan.Letters == 5, "%+v, %v", plan, err)
	testkit.Equal(t, "campaigns", s.pipe("campaigns").out, "")
	s.pipe("redrive", "--topic", "other", "--dry-run").wants(t, 3)
}

// Feature V6, V10: the diff of an edit, with numbers of any length as they were.
func TestDiff(t *testing.T) { bothWays(t, incident(), testDiff) }

func testDiff(t *testing.T, s *shop) {
	s.pipe("redrive", "4", "--dry-run", "--edit", `{"card":null,"currency":"EUR"}`, "--set", "tenant=green", "--unset", "none").
		wants(t, 0, "- tenant = blue\n+ tenant = green\n", `+   "currency": "EUR"`, "edit of SEQ 4")
	s.pipe("redrive", "5", "--dry-run", "--edit", `{"card":null}`).wants(t, 0, "refused")
	for _, edit := range []string{"{", "7", "[1]", "@/nowhere"} {
		s.pipe("redrive", "4", "--dry-run", "--edit", edit).wants(t, 2)
	}
}

// Feature V7, V10: a campaign from the question to its end, watched on a terminal, on record.
func TestCampaign(t *testing.T) { bothWays(t, incident(), testCampaign) }

func testCampaign(t *testing.T, s *shop) {
	to := &target{}
	s.works(to)
	no := s.terminal(100, "n\n", "redrive", "--handler", "billing", "--rate", "50", "--reason", "INC-7")
	testkit.Require(t, no.code == 4 && strings.Contains(no.out, "redrive 3 letters to orders at 50/s? [y/N]") &&
		len(to.messages()) == 0, "exit %d: %s; %v", no.code, no.out, to.all())
	yes := s.terminal(100, "y\n", "redrive", "--handler", "billing", "--rate", "50", "--reason", "INC-7")
	testkit.Require(t, yes.code == 0 && strings.Contains(yes.out, "is finished: redriven 3") &&
		strings.Contains(yes.out, "3/3") && strings.Contains(yes.out, "█"), "exit %d: %s", yes.code, yes.out)
	for _, drawn := range strings.Split(yes.out, "\r") { // a bar is drawn in place, on one line that fits
		line, _, _ := strings.Cut(regexp.MustCompile("\x1b\\[[0-9;]*[mK]").ReplaceAllString(drawn, ""), "\n")
		n := len([]rune(line))
		testkit.Check(t, !strings.Contains(line, "░") || n < 100, "%d columns: %s", n, line)
	}
	testkit.Check(t, slices.Equal(to.all(), []string{"id-0", "id-1", "id-2"}), "published %v", to.all())
	testkit.Equal(t, "entries on record", strings.Count(s.pipe("audit", "--kind", "redriven").out, "INC-7"), 3)
	listed := s.pipe("campaigns")
	id, _, _ := strings.Cut(listed.out, "\t")
	testkit.Check(t, strings.Contains(s.pipe("campaigns", id[:10]).out, "finished"), "%s %s", listed.out, listed.err)
	s.pipe("redrive", "--handler", "billing", "--reason", "again", "--yes").wants(t, 3)
}

// Feature V10: a campaign is paused, slowed, resumed and cancelled by the first characters of its id, with a reason.
func TestSteering(t *testing.T) { bothWays(t, incident(), testSteering) }

func testSteering(t *testing.T, s *shop) {
	began := s.pipe("redrive", "--handler", "billing", "--reason", "INC-7", "--yes", "--detach", "--json")
	var c operate.CampaignData
	err := json.Unmarshal([]byte(began.out), &c)
	testkit.Require(t, err == nil, "%s %s: %v", began.out, began.err, err)
	id := c.ID[:8]
	s.steps([]step{
		{2, "--reason is empty", []string{"pause", id}},
		{0, "is paused", []string{"pause", id, "--reason", "slow"}},
		{1, "state", []string{"pause", id, "--reason", "slow"}},
		{5, "is paused", []string{"watch", id}},
		{0, "is paused", []string{"rate", id, "10", "--reason", "slow"}},
		{2, "RATE", []string{"rate", id, "fast", "--reason", "slow"}},
		{0, "is running", []string{"resume", id, "--reason", "fast"}},
		{4, "cancel the redrive of 3 letters of shop?", []string{"cancel", id, "--reason", "wrong"}},
		{0, "is cancelled", []string{"cancel", id, "--reason", "wrong", "--yes"}},
		{5, "cancelled", []string{"watch", id}},
		{3, "no campaign has", []string{"watch", "zz"}},
	})
	record := s.pipe("campaigns", id).out
	for _, want := range []string{"started  ann  INC-7", "paused  ann  slow", "rate set", "resumed  ann  fast", "cancelled  ann  wrong"} {
		testkit.Check(t, strings.Contains(record, want), "%q is not on record: %s", want, record)
	}
}

// Feature V10: Ctrl-C detaches from a campaign, says so, and leaves it running.
func TestCtrlCDetaches(t *testing.T) {
	s := newShop(t, incident()...)
	cmd := exec.Command(binary, "redrive", "--handler", "billing", "--reason", "INC-7", "--yes")
	cmd.Env = s.env
	screen := testkit.Must(pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 100}))
	defer screen.Close()
	var mu sync.Mutex
	var seen strings.Builder
	read := make(chan struct{})
	go func() {
		defer close(read)
		buffer := make([]byte, 4096)
		for {
			n, err := screen.Read(buffer)
			mu.Lock()
			seen.Write(buffer[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	shown := func() string { mu.Lock(); defer mu.Unlock(); return seen.String() }
	testkit.Eventually(t, "it is watched", func() bool { return strings.Contains(shown(), "running 0/3") })
	testkit.Must(io.WriteString(screen, "\x03"))
	err := cmd.Wait()
	<-read
	var exit *exec.ExitError
	testkit.Check(t, errors.As(err, &exit) && exit.ExitCode() == 130 &&
		strings.Contains(shown(), "the campaign goes on"), "%v: %s", err, shown())
	running, err := s.campaigns().List(t.Context(), campaigns.List{States: []campaigns.State{campaigns.Running}})
	testkit.Check(t, err == nil && len(running) == 1, "%v, %v", running, err)
}
