// Package logging writes the log lines of the library.
//
// Each line is an Event, which the package that writes it declares, and has fields, whose names are in names.go. A part
// wraps the logger of its configuration once, and writes its lines with Event.Write:
//
//	config.Logger = logging.Wrap(config.Logger, config.Privacy.Text)
//	eventLeaseLost.Write(config.Logger, err, logging.Fields{logging.Consumer: key.Consumer, logging.Key: key.ID})
//
// A Log does what holds for all lines:
//
//   - The text of an error is masked, bounded, and in one line. So are the values of fields, which can come from
//     messages.
//   - Of the lines of an event in one place, such as a topic and handler, ten are written in a minute. Further ones are
//     counted. The end of the minute writes the count, in the field repeated, with the fields of the first line that
//     was counted. While the storm lasts, each minute has one line.
//   - A logger that panics loses its line. A logger that hangs delays one message by five seconds at most; 200 lines
//     wait for it, and further ones are counted. No line fails a message.
//
// The comment of an event says when a line comes, and what to do about it. docs/events.md is made from both.
package logging
