package wmsql_test

import (
	"bytes"
	"sync/atomic"

	"github.com/watermill-spillway/spillway/internal/faultproxy"
)

// cutting is what becomes of the next COMMIT: it arrives, and its answer does not, or neither does.
var cutting atomic.Int32

const (
	notCutting int32 = iota
	cutRequest
	cutAnswer
	holdAnswer // for ever
	cutNow     // the COMMIT is through: what the server says next is its answer
	holdNow
)

// watchCommits lets cutting decide what becomes of a COMMIT and of its answer.
func watchCommits(p *faultproxy.Proxy) {
	p.Watch(func(said []byte) faultproxy.Verdict {
		if said = bytes.ToLower(said); !bytes.Contains(said, []byte("commit")) || bytes.Contains(said, []byte("read committed")) {
			return faultproxy.Pass
		}
		if cutting.CompareAndSwap(cutRequest, notCutting) {
			return faultproxy.Close
		}
		cutting.CompareAndSwap(cutAnswer, cutNow)
		cutting.CompareAndSwap(holdAnswer, holdNow)
		return faultproxy.Pass
	}, func([]byte) faultproxy.Verdict {
		if cutting.CompareAndSwap(cutNow, notCutting) {
			return faultproxy.Close
		}
		if cutting.CompareAndSwap(holdNow, notCutting) {
			return faultproxy.Hold
		}
		return faultproxy.Pass
	})
}
