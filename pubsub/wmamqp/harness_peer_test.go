package wmamqp_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testing/faultproxy"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// peer is a broker in memory, for tests in which time is not the machine's. It opens connections, channels and
// consumers, delivers one message to each consumer, and confirms what is published, until it falls mute.
type peer struct {
	mu    sync.Mutex
	mute  string
	conns []net.Conn
	older int // of conns, that were open when it fell mute
}

// The ways in which a peer falls mute.
const (
	silent = "silent"    // it reads, and says nothing
	cutOff = "cut off"   // it closes connections; new ones fall silent before the handshake
	gone   = "gone"      // it closes connections, and takes no new ones
	lost   = "lost"      // it closes connections, and new ones are refused after a minute
	alive  = "never did" // it answers
	deaf   = "deaf"      // connections that are open have heartbeats, and no answer; new ones have both
	stingy = "stingy"    // connections that are open have answers, and no confirms; new ones have both
)

// config is one of watermill-amqp's for connections to the peer.
func (p *peer) config() amqp.Config {
	config := amqp.NewDurableQueueConfig("amqp://peer/")
	config.Connection.AmqpConfig = &amqp091.Config{Locale: "en_US", Dial: p.dial}
	return config
}

func (p *peer) falls(how string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute, p.older = how, len(p.conns)
	if how == cutOff || how == gone || how == lost {
		for _, conn := range p.conns {
			_ = conn.Close()
		}
	}
}

func (p *peer) how() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mute
}

func (p *peer) dial(string, string) (net.Conn, error) {
	switch p.how() {
	case lost:
		time.Sleep(time.Minute)
		return nil, io.ErrClosedPipe
	case gone:
		return nil, io.ErrClosedPipe
	}
	here, there := net.Pipe()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, there)
	go p.serve(there, len(p.conns))
	return here, nil
}

// says reports whether the peer writes a frame on the connection of that number.
func (p *peer) says(number int, frame []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch isMethod, isConfirm := frame[0] == 1, bytes.HasPrefix(frame[7:], []byte{0, 60, 0, 80}); p.mute {
	case "", alive:
		return true
	case deaf:
		return number > p.older || !isMethod
	case stingy:
		return number > p.older || !isConfirm
	}
	return false
}

// serve answers a connection's frames until it is closed.
func (p *peer) serve(conn net.Conn, number int) {
	in, answers := bufio.NewReader(conn), make(chan []byte, 100)
	defer close(answers)
	go func() {
		defer func() { _ = conn.Close() }()
		for frame := range answers {
			if p.says(number, frame) {
				_, _ = conn.Write(frame)
			}
		}
	}()
	header := make([]byte, 8)
	if _, err := io.ReadFull(in, header); err != nil { // the protocol's
		return
	}
	published := make(map[uint16]uint64)
	answers <- methodFrame(0, 10, 10, "\x00\x09\x00\x00\x00\x00\x00\x00\x00\x05PLAIN\x00\x00\x00\x05en_US")
	for {
		if _, err := io.ReadFull(in, header[:7]); err != nil {
			return
		}
		payload := make([]byte, binary.BigEndian.Uint32(header[3:])+1)
		if _, err := io.ReadFull(in, payload); err != nil {
			return
		}
		if isHeartbeat := header[0] == 8; isHeartbeat {
			answers <- rawFrame(8, 0, "")
		}
		if isMethod := header[0] == 1; isMethod {
			for _, frame := range answersTo(binary.BigEndian.Uint16(header[1:]), payload, published) {
				answers <- frame
			}
		}
	}
}

// answersTo are the frames that answer a method.
func answersTo(channel uint16, payload []byte, published map[uint16]uint64) [][]byte {
	class, method := binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:])
	ok := func(arguments string) [][]byte { return [][]byte{methodFrame(channel, class, method+1, arguments)} }
	switch [2]uint16{class, method} {
	case [2]uint16{10, 11}: // start-ok
		return [][]byte{methodFrame(channel, 10, 30, "\x07\xff\x00\x02\x00\x00\x00\x00")}
	case [2]uint16{10, 40}: // open
		return ok("\x00")
	case [2]uint16{10, 50}, [2]uint16{20, 40}, [2]uint16{60, 10}, [2]uint16{85, 10}: // close, qos, confirm
		return ok("")
	case [2]uint16{20, 10}: // channel
		return ok("\x00\x00\x00\x00")
	case [2]uint16{50, 10}: // queue
		return ok("\x01q\x00\x00\x00\x00\x00\x00\x00\x00")
	case [2]uint16{60, 20}: // consume: after a reserved number and the queue comes the consumer's tag
		tag := payload[6+1+int(payload[6]):]
		tag = tag[:1+int(tag[0])]
		return append(ok(string(tag)),
			methodFrame(channel, 60, 60, string(tag)+"\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x01q"),
			rawFrame(2, channel, "\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	case [2]uint16{60, 30}: // cancel
		return ok(string(payload[4 : 4+1+int(payload[4])]))
	case [2]uint16{60, 40}: // publish
		published[channel]++
		return [][]byte{methodFrame(channel, 60, 80, string(binary.BigEndian.AppendUint64(nil, published[channel]))+"\x00")}
	}
	return nil
}

func methodFrame(channel, class, method uint16, arguments string) []byte {
	payload := binary.BigEndian.AppendUint16(nil, class)
	payload = binary.BigEndian.AppendUint16(payload, method)
	return rawFrame(1, channel, string(payload)+arguments)
}

func rawFrame(kind byte, channel uint16, payload string) []byte {
	frame := binary.BigEndian.AppendUint16([]byte{kind}, channel)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(payload)))
	return append(append(frame, payload...), 0xce)
}

// proxy stands between a test and the broker, in this process.
type proxy struct {
	*faultproxy.Proxy
	uri string
}

func (b *broker) proxy() proxy {
	b.Helper()
	at := testkit.Must(url.Parse(b.uri))
	p := testkit.Must(faultproxy.New(at.Host))
	b.Cleanup(p.Close)
	at.Host = p.Addr()
	return proxy{p, at.String()}
}
