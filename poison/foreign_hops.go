package poison

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
)

// A record that was set aside twice has its origin headers twice, the first origin first. But a producer of the live
// topic can write such headers too, and they come before all others. So the last origin is believed, because the writer
// of the letter added it, and the one before it only where the last is its dead-letter topic by name. No live topic has
// such a name, so a producer's own header in a live topic is never the one.

// firstHop returns the index of the first of topics that is believed, or -1 where there are none.
func firstHop(topics []string) int {
	at := len(topics) - 1
	for at > 0 && keepsLettersOf(topics[at], topics[at-1]) {
		at--
	}
	return at
}

// keepsLettersOf reports whether dead is a name for the dead letters of topic: Spring says -dlt, and formerly .DLT;
// Connect leaves the name to the user, who mostly takes -dlq.
func keepsLettersOf(dead, topic string) bool {
	suffix, ok := strings.CutPrefix(dead, topic)
	return ok && topic != "" && len(suffix) == len("-dlt") && strings.Contains("-._", suffix[:1]) &&
		(strings.EqualFold(suffix[1:], "dlt") || strings.EqualFold(suffix[1:], "dlq"))
}

// headers are those that a record has several of, by name.
type headers map[string][]string

// keyKafkaRecord is where package wmkafka keeps headers that metadata has no room for.
const keyKafkaRecord = "x-kafka-record"

// repeatedHeaders reads what wmkafka.Marshaler writes: version 1, flags, a key if flag 2 is set, then names and values,
// each with its length and one more in front; 0 is null. What is not of this form has none.
func repeatedHeaders(r reader) headers {
	encoded := r[keyKafkaRecord]
	if encoded == "" || len(encoded) > 64<<10 {
		return nil
	}
	raw, err := base64.RawStdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(raw) < 2 || raw[0] != 1 {
		return nil
	}
	var fields []string
	for rest := raw[2:]; len(rest) > 0; {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size > uint64(len(rest)-n)+1 {
			return nil
		}
		end := n + int(max(size, 1)) - 1
		fields, rest = append(fields, string(rest[n:end])), rest[end:]
	}
	if raw[1]&2 != 0 && len(fields) > 0 {
		fields = fields[1:]
	}
	found := make(headers)
	for pair := range slices.Chunk(fields, 2) {
		if len(pair) == 2 {
			found[pair[0]] = append(found[pair[0]], pair[1])
		}
	}
	return found
}

// of returns all values of a header in their order. They count as long as metadata shows the last of them.
func (h headers) of(r reader, key string) []string {
	value := r.identity(key)
	if all := h[key]; len(all) > 0 && all[len(all)-1] == value {
		return all
	}
	if value == "" {
		return nil
	}
	return []string{value}
}

// nth returns the value that belongs to the i-th of n origins, and none where it cannot be told which does.
func (h headers) nth(r reader, key string, i, n int) string {
	if all := h.of(r, key); len(all) == n && len(all[i]) <= maxIdentity {
		return all[i]
	}
	return ""
}
