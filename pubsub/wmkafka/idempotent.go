package wmkafka

import (
	"fmt"
	"runtime/debug"
	"strings"
)

const saramaPath = "github.com/IBM/sarama"

// saramaVersion is the version of sarama in this program, or "" if the build does not say, or a replacement is used.
func saramaVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, module := range info.Deps {
		if module.Path != saramaPath {
			continue
		}
		if module.Replace != nil {
			module = module.Replace
		}
		if module.Path == saramaPath {
			return module.Version
		}
	}
	return ""
}

// idempotentKeeps reports whether an idempotent producer of this version of sarama confirms only records that are there:
// 1.61.1 and later ones (its #3762, #3765 and #3768). A version that cannot be read does not count.
func idempotentKeeps(version string) bool {
	var major, minor, patch int
	release, before, prerelease := strings.Cut(version, "-")
	if n, err := fmt.Sscanf(release, "v%d.%d.%d", &major, &minor, &patch); n != 3 || err != nil {
		return false
	}
	if major != 1 || minor != 61 || patch != 1 {
		return major > 1 || major == 1 && (minor > 61 || minor == 61 && patch > 1)
	}
	return !prerelease && before == ""
}
