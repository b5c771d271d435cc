package screen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/internal/operate/printable"
)

// Payload returns bytes as lines for people, cut at a limit of bytes with a line that says so. A limit of 0 cuts nothing.
func Payload(payload []byte, format printable.Format, limit int) (string, error) {
	v := printable.Payload(payload, format, limit, limit, true)
	switch {
	case v.Format == "":
		return "(empty)", nil
	case format == printable.JSON && v.Format != format:
		return "", errors.New("--format is json, and the payload is no JSON: use --format text or hex")
	case v.Cut:
		return fmt.Sprintf("%s\n… cut: %d bytes in all; --limit 0 shows the rest", strings.TrimRight(v.Text, "\n"), len(payload)), nil
	}
	return v.Text, nil
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
