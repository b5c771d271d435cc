package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
)

// faults are the handlers of the shop, and what is wrong with them.
type faults struct {
	bug         atomic.Bool // billing knows no new customers
	slow        atomic.Bool // what the mailer calls fails for a part of the calls
	unavailable atomic.Bool // what shipping calls is unavailable
	comeback    atomic.Bool // the broker refuses messages that come out of a stage
	invoices    atomic.Bool // the broker refuses invoices
}

func (f *faults) billing(msg *message.Message) ([]*message.Message, error) {
	if msg.Metadata.Get("fault") == "customer" && f.bug.Load() {
		return nil, classify.Permanent(errors.New("no such customer"), classify.Reason("no_customer"))
	}
	return []*message.Message{message.NewMessage(watermill.NewUUID(), []byte(`{}`))}, nil
}

func (f *faults) mailer(msg *message.Message) error {
	switch fault := msg.Metadata.Get("fault"); {
	case fault == "old":
		return classify.Discard(errors.New("the mail is of no use now"),
			classify.Reason(fmt.Sprint("mail_", rand.N(1000))))
	case fault == "address":
		return classify.Invalid(errors.New("no address"), classify.Reason("no_address"))
	case f.slow.Load() && rand.N(100) < 45:
		return classify.Transient(errors.New("the mail server is busy"))
	}
	return nil
}

func (f *faults) shipping(*message.Message) error {
	if f.unavailable.Load() {
		return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	return nil
}

func (f *faults) storage(msg *message.Message) error {
	if msg.Metadata.Get("fault") == "later" && msg.Metadata.Get("x-retry-stage") == "" {
		return classify.Transient(errors.New("the shelf is being counted"))
	}
	return nil
}

func (f *faults) reporter(*message.Message) error { return nil }
