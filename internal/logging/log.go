package logging

import (
	"maps"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/privacy"
)

// Log is a logger that a line of an Event goes through. It contains panics, goes on without a logger that hangs, and
// counts repeats.
type Log struct {
	core   *core
	fields Fields // of With
}

// Wrap returns a Log that writes to logger. It returns a Log as it is, so that parts that share a logger share their
// counts. A nil logger drops all lines. Mask is called with the texts of errors, such as the Text method of a
// privacy.Redactor; nil masks credentials.
func Wrap(logger watermill.LoggerAdapter, mask func(string) string) watermill.LoggerAdapter {
	if v := reflect.ValueOf(logger); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return watermill.NopLogger{}
	}
	switch logger.(type) {
	case *Log, watermill.NopLogger:
		return logger
	}
	if mask == nil {
		mask = (*privacy.Redactor)(nil).Text
	}
	log := NewLate(mask)
	log.Bind(logger)
	return log
}

// NewLate returns a Log that drops its lines until Bind gives it a logger. Mask is that of Wrap, and not nil.
func NewLate(mask func(string) string) *Log { return &Log{core: newCore(mask)} }

// Bind gives l, and all that With made of it, the logger. Later calls have no effect.
func (l *Log) Bind(logger watermill.LoggerAdapter) {
	if logger != nil {
		l.core.writer.to.CompareAndSwap(nil, &logger)
	}
}

// of returns the Log of a logger that a part was given.
func of(logger watermill.LoggerAdapter) *Log {
	if log, ok := logger.(*Log); ok {
		return log
	}
	log := NewLate((*privacy.Redactor)(nil).Text)
	log.core.counts = false
	log.Bind(logger)
	return log
}

// Flush writes what is counted and was not written yet, for the end of a router.
func Flush(logger watermill.LoggerAdapter) {
	if log, ok := logger.(*Log); ok {
		log.core.flush()
	}
}

// Error passes on a line that is no event of the library.
func (l *Log) Error(msg string, err error, fields watermill.LogFields) {
	l.core.writer.write(entry{watermill.ErrorLogLevel, msg, err, l.with(fields)})
}

// Info passes on a line that is no event of the library.
func (l *Log) Info(msg string, fields watermill.LogFields) {
	l.core.writer.write(entry{watermill.InfoLogLevel, msg, nil, l.with(fields)})
}

// Debug passes on a line that is no event of the library.
func (l *Log) Debug(msg string, fields watermill.LogFields) {
	l.core.writer.write(entry{watermill.DebugLogLevel, msg, nil, l.with(fields)})
}

// Trace passes on a line that is no event of the library.
func (l *Log) Trace(msg string, fields watermill.LogFields) {
	l.core.writer.write(entry{watermill.TraceLogLevel, msg, nil, l.with(fields)})
}

// With returns a Log that adds fields to each line, and counts together with l.
func (l *Log) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return &Log{core: l.core, fields: maps.Clone(l.with(fields))}
}

func (l *Log) with(fields Fields) Fields {
	if len(l.fields) == 0 {
		return fields
	}
	all := maps.Clone(l.fields)
	maps.Copy(all, fields)
	return all
}

// entry returns a line as it is given to the logger: the error masked, all texts bounded and without control
// characters. It owns fields.
func (c *core) entry(e *Event, err error, fields Fields) entry {
	if fields == nil {
		fields = make(Fields, 2)
	}
	for name, value := range fields {
		switch v := value.(type) {
		case string:
			if freeText[name] {
				v = c.masked(v)
			}
			fields[name] = clean(v)
		case time.Duration:
			fields[name] = v.String()
		case error:
			fields[name] = c.text(v)
		}
	}
	fields[EventName] = e.name
	if err != nil && e.level != watermill.ErrorLogLevel {
		fields[Error] = c.text(err)
		err = nil
	}
	if err != nil {
		err = shown{c.text(err), err}
	}
	return entry{e.level, e.text, err, fields}
}

const (
	maxValue  = 200      // bytes of a field
	maxError  = 1 << 10  // bytes of the text of an error
	maxMasked = 64 << 10 // bytes of a text that is masked: a cut first can leave half of a secret
)

// text returns the text of err: masked, bounded, in one line.
func (c *core) text(err error) string {
	text, ok := err.(masked)
	if !ok {
		text = masked(c.masked(boundedtext.Error(err, maxMasked)))
	}
	return boundedtext.Text(oneLine(string(text)), maxError)
}

// shown is an error with its text as a line has it. Loggers that look for an error by errors.Is find it.
type shown struct {
	text string
	err  error
}

func (s shown) Error() string { return s.text }
func (s shown) Unwrap() error { return s.err }

func (c *core) masked(text string) (shown string) {
	shown = "[withheld: the mask panicked]"
	defer func() { _ = recover() }()
	return c.mask(text)
}

// clean returns the value of a field: bounded, in one line.
func clean(value string) string {
	if len(value) <= maxValue && !needsEscape(value) {
		return value
	}
	return boundedtext.Text(oneLine(boundedtext.Text(value, maxValue)), maxValue)
}

func needsEscape(text string) bool {
	for _, r := range text {
		if isUnsafe(r) {
			return true
		}
	}
	return false
}

// isUnsafe reports whether r could end a line, move a terminal's cursor, or reorder the text.
func isUnsafe(r rune) bool {
	return r < ' ' || r >= 0x7f && (r == utf8.RuneError || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.C, r))
}

// oneLine returns text with the characters escaped that are not safe in a line, as \n for a new line.
func oneLine(text string) string {
	if !needsEscape(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + 16)
	for _, r := range text {
		if !isUnsafe(r) || r == utf8.RuneError {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// IsSilent reports whether logger drops every line, so that its fields need not be built.
func IsSilent(logger watermill.LoggerAdapter) bool {
	if log, ok := logger.(*Log); ok {
		logger = log.core.writer.logger()
	}
	if logger == nil {
		return true
	}
	_, nop := logger.(watermill.NopLogger)
	return nop
}
