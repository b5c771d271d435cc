package wmamqp

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// parser reads what appendField wrote, or what a producer put in its place: every length is checked against the bytes
// that are there, and the first thing that is wrong ends it.
type parser struct {
	rest []byte
	bad  bool
}

func (p *parser) take(n int) []byte {
	if p.bad || n < 0 || n > len(p.rest) {
		p.bad, p.rest = true, nil
		return nil
	}
	taken := p.rest[:n:n]
	p.rest = p.rest[n:]
	return taken
}

func (p *parser) uint8() uint8 {
	if b := p.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (p *parser) uint16() uint16 {
	if b := p.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (p *parser) uint32() uint32 {
	if b := p.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (p *parser) uint64() uint64 {
	if b := p.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// long is a run of bytes with its length before it.
func (p *parser) long() []byte { return p.take(int(p.uint32())) }

func (p *parser) field(depth int) any {
	switch p.uint8() {
	case 'V':
		return nil
	case 't':
		switch p.uint8() {
		case 0:
			return false
		case 1:
			return true
		}
	case 'B':
		return p.uint8()
	case 'b':
		return int8(p.uint8())
	case 's':
		return int16(p.uint16())
	case 'I':
		return int32(p.uint32())
	case 'l':
		return int64(p.uint64())
	case 'f':
		return math.Float32frombits(p.uint32())
	case 'd':
		return math.Float64frombits(p.uint64())
	case 'D':
		return amqp091.Decimal{Scale: p.uint8(), Value: int32(p.uint32())}
	case 'T':
		return time.Unix(int64(p.uint64()), 0)
	case 'S':
		return string(p.long())
	case 'x':
		return append([]byte{}, p.long()...)
	case 'A':
		return p.array(depth)
	case 'F':
		if depth < maxDepth {
			return p.table(depth + 1)
		}
	}
	p.bad = true
	return nil
}

func (p *parser) array(depth int) []any {
	inner := parser{rest: p.long(), bad: p.bad || depth >= maxDepth}
	array := []any{}
	for !inner.bad && len(inner.rest) > 0 {
		array = append(array, inner.field(depth+1))
	}
	p.bad = p.bad || inner.bad
	return array
}

func (p *parser) table(depth int) amqp091.Table {
	inner := parser{rest: p.long(), bad: p.bad}
	table := amqp091.Table{}
	for !inner.bad && len(inner.rest) > 0 {
		key := string(inner.take(int(inner.uint8())))
		if _, twice := table[key]; twice {
			inner.bad = true
		}
		table[key] = inner.field(depth)
	}
	p.bad = p.bad || inner.bad
	return table
}
