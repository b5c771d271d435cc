package main

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/downstream"
)

// deadlyExit is the exit status of a process that a deadly message ended.
const deadlyExit = 3

var (
	errDown  = errors.New("the downstream is down")
	errNever = errors.New("this can never succeed")
)

// handler does what a message's kind says.
type handler struct {
	seed   uint64
	site   *site
	client *downstream.Client // nil without outages
	failed sync.Map           // how often a transient message failed in this process
}

func (h *handler) handle(msg *message.Message) ([]*message.Message, error) {
	id := nameOf(msg)
	if sum := checksum(msg.Payload); msg.Metadata.Get(sumKey) != sum {
		return nil, classify.Invalid(fmt.Errorf("the payload of %s was altered: its sum is %s", id, sum),
			classify.Reason("altered"))
	}
	output := message.NewMessage("", []byte(id))
	time.Sleep(time.Duration(draw(h.seed, id, 4)) * time.Millisecond)
	switch k := kindOf(id); k.name {
	case slow:
		time.Sleep(700 * time.Millisecond)
	case transient:
		if err := h.atFirst(id); err != nil {
			return nil, err
		}
	case staged:
		if inside.Poison.StageOf(msg).Number < 1+draw(h.seed, id, len(delays)) {
			return nil, errDown // nothing marks it: it is unknown
		}
	case hopeless:
		return nil, classify.Transient(errDown)
	case unnamed:
		if inside.Poison.StageOf(msg).Number < draw(h.seed, id, 2) {
			return nil, errDown
		}
	case permanent, oversized, rejected:
		return nil, classify.Permanent(errNever)
	case invalid:
		return nil, classify.Invalid(errNever)
	case panicking:
		panic("a bug that " + id + " finds")
	case deadly, neighbour:
		os.Exit(deadlyExit)
	case undeliverable:
		output = h.site.refused(id)
	}
	if h.client != nil {
		if err := h.client.Call(msg.Context(), id); err != nil {
			return nil, err
		}
	}
	if _, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(),
		h.site.bind(`INSERT INTO chaos_effects (id, process) VALUES (?, ?)`), id, os.Getpid()); err != nil {
		return nil, err
	}
	// What breaks now finds an effect that is not committed.
	if kindOf(id).name == slow {
		time.Sleep(800 * time.Millisecond)
	}
	time.Sleep(time.Duration(draw(h.seed, id, 8)) * time.Millisecond)
	return []*message.Message{output}, nil
}

// atFirst fails once or twice in a row, and so in fewer attempts than there are.
func (h *handler) atFirst(id string) error {
	n, _ := h.failed.LoadOrStore(id, 0)
	if n.(int) > draw(h.seed, id, 2) {
		h.failed.Delete(id)
		return nil
	}
	h.failed.Store(id, n.(int)+1)
	return classify.Transient(errDown)
}

// sumKey is the metadata with which everybody can see whether a payload is what was published.
const sumKey = "sum"

func checksum(payload []byte) string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE(payload)), 16)
}
