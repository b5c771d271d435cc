package metadatacodec

import (
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// What was packed is read again, whatever bytes it has; what is cut, or of another version, is an error.
func TestRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 300), func(b []byte) string { return string(b) })
		want := rapid.MapOfN(bytes, bytes, 0, 5).Draw(t, "metadata")
		packed := Metadata(want)
		got, err := Read(packed)
		if err != nil || !maps.Equal(got, want) {
			t.Fatalf("read %q, %v, of %q", got, err, want)
		}
		if cut := rapid.IntRange(0, len(packed)-1).Draw(t, "cut"); cut != 1 {
			if short, err := Read(packed[:cut]); err == nil && maps.Equal(short, want) {
				t.Fatalf("cut at %d of %d nothing is missing", cut, len(packed))
			}
		}
	})
	for _, damaged := range [][]byte{nil, {}, {2}, {1, 5, 'a'}, {1, 1, 'a'}, {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}} {
		if got, err := Read(damaged); err == nil {
			t.Errorf("%v reads as %q", damaged, got)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte{1, 1, 'a', 1, 'b'})
	f.Fuzz(func(t *testing.T, packed []byte) {
		if metadata, err := Read(packed); err == nil {
			if again, err := Read(Metadata(metadata)); err != nil || !maps.Equal(again, metadata) {
				t.Errorf("%q reads as %q, %v", metadata, again, err)
			}
		}
	})
}
