package wmamqp

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rabbitmq/amqp091-go"
)

// maxDepth is how deep tables and arrays may lie in one another and still keep their types. Deeper ones, which only a
// program gone wrong writes, are readable text.
const maxDepth = 256

// maxShort is the length of AMQP's short strings: header names, most properties, exchanges, routing keys, queues. The
// client cuts longer ones without a word, and a cut name is another name.
const maxShort = 255

// appendField writes a value as AMQP does on the wire: its type, then its bytes. ok is false for what AMQP cannot
// carry.
func appendField(b []byte, value any, depth int) (_ []byte, ok bool) {
	switch v := value.(type) {
	case nil:
		return append(b, 'V'), true
	case bool:
		if v {
			return append(b, 't', 1), true
		}
		return append(b, 't', 0), true
	case uint8:
		return append(b, 'B', v), true
	case int8:
		return append(b, 'b', byte(v)), true
	case int16:
		return binary.BigEndian.AppendUint16(append(b, 's'), uint16(v)), true
	case int32:
		return binary.BigEndian.AppendUint32(append(b, 'I'), uint32(v)), true
	case int: // the client writes 32 bits of it
		return binary.BigEndian.AppendUint32(append(b, 'I'), uint32(v)), true
	case int64:
		return binary.BigEndian.AppendUint64(append(b, 'l'), uint64(v)), true
	case float32:
		return binary.BigEndian.AppendUint32(append(b, 'f'), math.Float32bits(v)), true
	case float64:
		return binary.BigEndian.AppendUint64(append(b, 'd'), math.Float64bits(v)), true
	case amqp091.Decimal:
		return binary.BigEndian.AppendUint32(append(b, 'D', v.Scale), uint32(v.Value)), true
	case time.Time:
		return binary.BigEndian.AppendUint64(append(b, 'T'), uint64(v.Unix())), true
	case string:
		return append(binary.BigEndian.AppendUint32(append(b, 'S'), uint32(len(v))), v...), true
	case []byte:
		return append(binary.BigEndian.AppendUint32(append(b, 'x'), uint32(len(v))), v...), true
	case []any:
		return sized(append(b, 'A'), func(b []byte) ([]byte, bool) {
			ok := depth < maxDepth
			for i := 0; ok && i < len(v); i++ {
				b, ok = appendField(b, v[i], depth+1)
			}
			return b, ok
		})
	case amqp091.Table:
		if depth >= maxDepth {
			return b, false
		}
		return appendTable(append(b, 'F'), v, depth+1)
	}
	return b, false
}

// appendTable writes the fields sorted, so that equal tables have equal bytes.
func appendTable(b []byte, table amqp091.Table, depth int) ([]byte, bool) {
	return sized(b, func(b []byte) ([]byte, bool) {
		ok := true
		for _, key := range slices.Sorted(maps.Keys(table)) {
			if len(key) > maxShort {
				return b, false
			}
			b = append(append(b, byte(len(key))), key...)
			if b, ok = appendField(b, table[key], depth); !ok {
				return b, false
			}
		}
		return b, true
	})
}

// sized puts the length of what fill appends before it.
func sized(b []byte, fill func([]byte) ([]byte, bool)) ([]byte, bool) {
	at := len(b)
	b, ok := fill(append(b, 0, 0, 0, 0))
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b, ok
}

// text makes a header's value readable: it is what handlers and people see of it in metadata.
func text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case []byte:
		return bytesText(v)
	}
	encoded, _ := json.Marshal(forJSON(value)) // which has nothing that fails
	return string(encoded)
}

func bytesText(v []byte) string {
	if utf8.Valid(v) {
		return string(v)
	}
	return base64.StdEncoding.EncodeToString(v)
}

// forJSON makes a value of AMQP one that JSON can hold.
func forJSON(value any) any {
	switch v := value.(type) {
	case float32:
		return floatForJSON(float64(v), value)
	case float64:
		return floatForJSON(v, value)
	case amqp091.Decimal:
		return json.Number(decimalText(v))
	case time.Time, []byte:
		return text(value)
	case []any:
		array := make([]any, len(v))
		for i, element := range v {
			array[i] = forJSON(element)
		}
		return array
	case amqp091.Table:
		object := make(map[string]any, len(v))
		for key, element := range v {
			object[key] = forJSON(element)
		}
		return object
	}
	return value
}

func floatForJSON(v float64, value any) any {
	if math.IsNaN(v) || math.IsInf(v, 0) { // not JSON's numbers
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return value
}

// decimalText writes 12345 with a scale of 2 as 123.45.
func decimalText(d amqp091.Decimal) string {
	digits, sign := strconv.FormatInt(int64(d.Value), 10), ""
	if d.Scale == 0 {
		return digits
	}
	if d.Value < 0 {
		digits, sign = digits[1:], "-"
	}
	if missing := int(d.Scale) + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	point := len(digits) - int(d.Scale)
	return sign + digits[:point] + "." + digits[point:]
}
