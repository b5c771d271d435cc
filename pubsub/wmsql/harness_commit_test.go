package wmsql_test

import (
	"bytes"
	"sync/atomic"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

// cutting is how the toxics below treat the next COMMIT: it arrives, and its answer does not, or neither does.
var cutting atomic.Int32

const (
	notCutting int32 = iota
	cutRequest
	cutAnswer
	holdAnswer // for ever
	cutNow     // the COMMIT is through: what the server says next is its answer
	holdNow
)

func init() {
	toxics.Register("commit", new(commitToxic))
	toxics.Register("answer", new(answerToxic))
}

// watchCommits puts the toxics in place.
func (p *proxy) watchCommits() {
	p.toxic(`{"name":"commit","type":"commit","stream":"upstream","attributes":{}}`)
	p.toxic(`{"name":"answer","type":"answer","stream":"downstream","attributes":{}}`)
}

type commitToxic struct{}

func (*commitToxic) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
			if said := bytes.ToLower(chunk.Data); bytes.Contains(said, []byte("commit")) && !bytes.Contains(said, []byte("read committed")) {
				if cutting.CompareAndSwap(cutRequest, notCutting) {
					stub.Close()
					return
				}
				cutting.CompareAndSwap(cutAnswer, cutNow)
				cutting.CompareAndSwap(holdAnswer, holdNow)
			}
			stub.Output <- chunk
		}
	}
}

type answerToxic struct{}

func (*answerToxic) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil || cutting.CompareAndSwap(cutNow, notCutting) {
				stub.Close()
				return
			}
			if cutting.CompareAndSwap(holdNow, notCutting) {
				<-stub.Interrupt
				return
			}
			stub.Output <- chunk
		}
	}
}

// Cleanup ends what is stuck when the proxy is healed.
func (*answerToxic) Cleanup(stub *toxics.ToxicStub) { stub.Close() }
