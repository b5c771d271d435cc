package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// spring is the Java program: one virtual machine for all runs.
type spring struct {
	brokers string
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

// startSpring starts what Maven built in folder. Without a folder it returns nil.
func startSpring(ctx context.Context, folder string, brokers []string) (s *spring, err error) {
	if folder == "" {
		return nil, nil
	}
	if _, err := os.Stat(filepath.Join(folder, "classes", "peers", "Peer.class")); err != nil {
		return nil, fmt.Errorf("-spring %s has no program that Maven built: run make bench-peers, or give -spring= to "+
			"leave Spring out", folder)
	}
	s = &spring{brokers: strings.Join(brokers, ",")}
	s.command = exec.CommandContext(ctx, "java", "-cp",
		filepath.Join(folder, "classes")+":"+filepath.Join(folder, "dependency", "*"), "peers.Peer")
	s.command.Stderr = os.Stderr
	if s.in, err = s.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewReader(out)
	return s, s.command.Start()
}

// close ends the program. A nil spring has none.
func (s *spring) close() error {
	if s == nil {
		return nil
	}
	return errors.Join(s.in.Close(), s.command.Wait())
}

// seeking is Spring Kafka as it is by default.
func (s *spring) seeking(c *harness.Cluster, r *run) (perSecond float64, err error) {
	return s.run(c, r, true)
}

// keeping is Spring Kafka where a failure does not throw away what was fetched.
func (s *spring) keeping(c *harness.Cluster, r *run) (perSecond float64, err error) {
	return s.run(c, r, false)
}

func (s *spring) run(c *harness.Cluster, r *run, seek bool) (perSecond float64, err error) {
	id := watermill.NewShortUUID()
	c.Made(r.topic+retrySuffix+id, r.topic+deadSuffix+id)
	if _, err := fmt.Fprintln(s.in, s.request(r, id, seek)); err != nil {
		return 0, err
	}
	answer, err := s.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("the Java program ended: %w", err)
	}
	return perSecondOf(answer)
}

// The topics of a run's retry and of its dead letters are its own: a new group would read those of earlier runs again.
const (
	retrySuffix = "-retry-"
	deadSuffix  = "-dlt-"
)

// request is the line for a run.
func (s *spring) request(r *run, id string, seek bool) string {
	return fmt.Sprintf("brokers=%s topic=%s group=%s retry_suffix=%s dlt_suffix=%s messages=%d failing_percent=%d "+
		"limit_s=%d delay_ms=%d seek=%t", s.brokers, r.topic, id, retrySuffix+id, deadSuffix+id, r.messages, r.percent,
		int(r.limit.Seconds()), waits.Milliseconds(), seek)
}

// perSecondOf reads the line that answers.
func perSecondOf(answer string) (float64, error) {
	var good, failures, nanos int64
	if _, err := fmt.Sscanf(answer, "good=%d failures=%d nanos=%d", &good, &failures, &nanos); err != nil ||
		nanos <= 0 {
		return 0, fmt.Errorf("the Java program answered %q", answer)
	}
	return float64(good) / time.Duration(nanos).Seconds(), nil
}
