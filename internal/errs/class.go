package errs

import "fmt"

// Class says what can be done about an error: classify.Class.
type Class uint8

// The classes. Package classify says what each means.
const (
	Unknown Class = iota
	Transient
	Permanent
	Invalid
	Discard
	Aborted
)

var names = [...]string{"unknown", "transient", "permanent", "invalid", "discard", "aborted"}

// String returns the lower-case name that stands in metadata and logs.
func (c Class) String() string {
	if int(c) < len(names) {
		return names[c]
	}
	return names[Unknown]
}

// MarshalText returns the name of the class, as String does.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the name of a class, as String returns it. Any other text is an error, and leaves the class as it
// is.
func (c *Class) UnmarshalText(text []byte) error {
	for i, name := range names {
		if name == string(text) {
			*c = Class(i)
			return nil
		}
	}
	return fmt.Errorf("classify: unknown class %q: use the name of one, such as %q", text, Permanent)
}
