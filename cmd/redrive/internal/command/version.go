package command

import (
	"cmp"
	"runtime/debug"
)

// release is the version of a binary of make release, which is built in a tree and so has none of its module.
var release string

// version is that of this program, and of the Go that built it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(release, "of an unknown version")
	}
	return cmp.Or(release, info.Main.Version, "(devel)") + ", " + info.GoVersion
}
