package screen

import (
	"bytes"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Format is how Payload shows bytes.
type Format string

// The formats. FormatAuto chooses JSON for JSON, text for text, and hex for the rest.
const (
	FormatAuto Format = "auto"
	FormatJSON Format = "json"
	FormatText Format = "text"
	FormatHex  Format = "hex"
)

// Payload returns bytes as lines for people, cut at a limit of bytes with a line that says so. JSON is indented and its
// numbers and strings stay as they are. A limit of 0 cuts nothing.
func Payload(payload []byte, format Format, limit int) (string, error) {
	if len(payload) == 0 {
		return "(empty)", nil
	}
	var shown []byte
	switch format {
	case FormatAuto, FormatJSON, "":
		var indented bytes.Buffer
		err := json.Indent(&indented, payload, "", "  ")
		switch {
		case err == nil && utf8.Valid(payload):
			shown = indented.Bytes()
		case format == FormatJSON:
			return "", fmt.Errorf("--format is json, and the payload is no JSON: %w; use --format text or hex", err)
		case utf8.Valid(payload) && !bytes.ContainsRune(payload, 0):
			shown = payload
		default:
			return hexLines(payload, limit), nil
		}
	case FormatText:
		shown = payload
	case FormatHex:
		return hexLines(payload, limit), nil
	default:
		return "", fmt.Errorf("--format is %q: use auto, json, text or hex", format)
	}
	cutAt := len(shown)
	if limit > 0 && cutAt > limit {
		for cutAt = limit; cutAt > 0 && !utf8.RuneStart(shown[cutAt]); cutAt-- {
		}
	}
	text := Block(string(shown[:cutAt]))
	if cutAt < len(shown) {
		text = strings.TrimRight(text, "\n") + "\n" + cutMark(len(payload))
	}
	return text, nil
}

func cutMark(all int) string {
	return fmt.Sprintf("… cut: %d bytes in all; --limit 0 shows the rest", all)
}

func hexLines(payload []byte, limit int) string {
	if limit <= 0 || limit >= len(payload) {
		return hex.Dump(payload)
	}
	return hex.Dump(payload[:limit]) + cutMark(len(payload))
}

// JSON prints v as one line of JSON, without secrets.
func (s *Screen) JSON(v any) error {
	line, err := Line(v)
	if err != nil {
		return err
	}
	line = s.Privacy.Payload(line)
	_, err = s.Out.Write(append(line, '\n'))
	return err
}

// Line is v as one line of JSON in which every character that a terminal obeys is escaped. A program reads the same
// values.
func Line(v any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	raw := bytes.TrimRight(buffer.Bytes(), "\n")
	line := make([]byte, 0, len(raw))
	for len(raw) > 0 { // what is not ASCII is inside of a string
		r, size := utf8.DecodeRune(raw)
		switch {
		case unicode.IsPrint(r):
			line = append(line, raw[:size]...)
		case r > 0xffff:
			r -= 0x10000
			line = fmt.Appendf(line, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			line = fmt.Appendf(line, `\u%04x`, r)
		}
		raw = raw[size:]
	}
	return line, nil
}

// CSV returns a writer of comma-separated values whose cells must come from Cell.
func CSV(w io.Writer) *csv.Writer { return csv.NewWriter(w) }
