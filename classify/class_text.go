package classify

import "fmt"

// MarshalText returns the name of the class, as String does.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the name of a class. Any other text is an error.
func (c *Class) UnmarshalText(text []byte) error {
	class, ok := ParseClass(string(text))
	if !ok {
		return fmt.Errorf("classify: unknown class %q: use the name of one, such as %q", text, ClassPermanent)
	}
	*c = class
	return nil
}
