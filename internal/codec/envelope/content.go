package envelope

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
)

// Content is what an envelope hides.
type Content struct {
	// Payload is kept byte for byte. Nil and empty payloads are kept apart.
	Payload []byte
	// Metadata are the producer's.
	Metadata map[string]string
}

const noPayload = 1 // the flag of a nil payload

// plain writes the content, the keys in their order: the same content has the same bytes.
func (c *Content) plain() []byte {
	size := 1 + binary.MaxVarintLen64 + len(c.Payload)
	for key, value := range c.Metadata {
		size += len(key) + len(value) + 2*binary.MaxVarintLen32
	}
	to := make([]byte, 0, size)
	if c.Payload == nil {
		to = append(to, noPayload)
	} else {
		to = append(to, 0)
	}
	to = binary.AppendUvarint(to, uint64(len(c.Metadata)))
	for _, key := range slices.Sorted(maps.Keys(c.Metadata)) {
		to = appendField(appendField(to, []byte(key)), []byte(c.Metadata[key]))
	}
	return append(to, c.Payload...)
}

// readContent is the way back. Who holds the key may have written anything.
func readContent(plain []byte) (c Content, ok bool) {
	r := reader{rest: plain}
	flags := r.take(1)
	n := r.number(uint64(len(plain)))
	for ; n > 0 && !r.failed; n-- {
		if c.Metadata == nil {
			c.Metadata = make(map[string]string)
		}
		key := r.field(math.MaxInt32)
		c.Metadata[string(key)] = string(r.field(math.MaxInt32))
	}
	switch {
	case r.failed, flags[0] > noPayload, flags[0] == noPayload && len(r.rest) > 0:
		return Content{}, false
	case flags[0] == 0:
		c.Payload = slices.Clip(r.rest)
		if c.Payload == nil {
			c.Payload = []byte{}
		}
	}
	return c, true
}
