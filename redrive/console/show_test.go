package console

import "testing"

// Numbers are grouped, and the first one chooses between the forms.
func TestNumbersInWords(t *testing.T) {
	for want, got := range map[string]string{
		"1 letter": lettersOf(1), "1,312 letters": lettersOf(1312), "0 letters": lettersOf(0),
		"-1,234,567": grouped(-1_234_567), "999": grouped(999), "1,000": grouped(1000),
		"1 byte": size(1), "1.0 KiB": size(1024), "10.0 MiB": size(10 << 20), "2.0 GiB": size(2 << 30),
		"in the future": age(-1), "less than a minute": age(1), "1 min": age(90e9), "47 hours": age(47 * 3600e9), "2 days": age(50 * 3600e9),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
