package classify

import "fmt"

// MarshalText returns the name of the class, as String does.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the name of a class, as String returns it. Any other text is an error, and leaves the class as it
// is.
func (c *Class) UnmarshalText(text []byte) error {
	for i, name := range classNames {
		if name == string(text) {
			*c = Class(i)
			return nil
		}
	}
	return fmt.Errorf("classify: unknown class %q: use the name of one, such as %q", text, ClassPermanent)
}
