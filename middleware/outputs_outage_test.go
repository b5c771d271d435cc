package middleware_test

import (
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/settings"
)

var errRefusedDial = fmt.Errorf("publish: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})

// Feature D15, promise P3, decision 13: sources are held through an outage of their outputs' broker, and none is set
// aside or nacked. The log has one Error for the outage.
func TestOutputsThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, began := watermill.NewCaptureLogger(), time.Now()
		dead, pub := &publisher{}, &publisher{refuse: func(string, *message.Message) error {
			if time.Since(began) < 14*time.Second {
				return errRefusedDial
			}
			return nil
		}}
		o := newOutputs(t, dead, middleware.OutputsConfig{Shared: settings.Shared{Logger: logger}})
		decorated := decorate(t, o, pub)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				err := route(o, decorated, newMessage(strconv.Itoa(i)), producing("a"+strconv.Itoa(i), "b"+strconv.Itoa(i)))
				testkit.Check(t, err == nil, "%v", err)
			})
		}
		all.Wait()
		time.Sleep(time.Minute) // the end is logged when failures have stopped for a while
		testkit.Check(t, len(pub.ids()) == 40 && len(dead.ids()) == 0,
			"%d outputs, %d letters", len(pub.ids()), len(dead.ids()))
		if lines := logger.Captured(); len(lines[watermill.ErrorLogLevel]) != 1 || len(lines[watermill.InfoLogLevel]) != 1 {
			t.Errorf("logged %v", lines)
		}
	})
}

// Feature D15, promises P3, P4, decision 21: a broker that nacks outputs for minutes costs no source. An output queue
// that is full for good costs one source in five minutes, and those behind it are held.
func TestOutputsThroughNacks(t *testing.T) {
	for lasts, letters := range map[time.Duration]int{4 * time.Minute: 0, 16 * time.Minute: 3} {
		t.Run(lasts.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, nack := time.Now(), outage.NewNack("nack")
				dead, pub := &publisher{}, &publisher{refuse: func(string, *message.Message) error {
					if time.Since(began) < lasts {
						return nack
					}
					return nil
				}}
				o := newOutputs(t, dead, middleware.OutputsConfig{})
				decorated := decorate(t, o, pub)
				var all sync.WaitGroup
				for i := range 20 {
					all.Go(func() {
						err := errRefusedDial
						for err != nil {
							msg := newMessage(strconv.Itoa(i))
							if err = route(o, decorated, msg, producing("of "+strconv.Itoa(i))); err != nil && !aborted(err) {
								t.Error(err)
							}
							time.Sleep(10 * time.Millisecond)
						}
					})
				}
				all.Wait()
				testkit.Check(t, len(dead.ids()) == letters && len(pub.ids()) == 20-letters,
					"%d letters, not %d; %d outputs", len(dead.ids()), letters, len(pub.ids()))
				for _, l := range dead.letters(t) {
					testkit.Equal(t, "the letter", l.Failure.Reason, classify.ReasonOutput)
				}
			})
		})
	}
}
