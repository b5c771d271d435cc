package wmkafka

import (
	"testing"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Promise P1: an idempotent producer is taken from the version of sarama on that lost nothing, and refused before, and
// where the version cannot be read.
func TestIdempotentByVersion(t *testing.T) {
	for version, keeps := range map[string]bool{
		"v1.61.1": true, "v1.61.2": true, "v1.62.0": true, "v2.0.0": true, "v1.62.0-rc.1": true,
		"v1.61.0": false, "v1.61.1-0.20261101000000-abcdefabcdef": false, "v1.60.2": false, "v1.43.3": false, "v0.62.9": false,
		"": false, "(devel)": false, "v1": false,
	} {
		testkit.Equal(t, version, idempotentKeeps(version), keeps)
		if version == "" { // the program's own counts then
			continue
		}
		config := PublisherConfig{Sarama: func(c *sarama.Config) { c.Producer.Idempotent, c.Net.MaxOpenRequests = true, 1 }, sarama: version}
		config.setDefaults()
		if err := config.validate(); keeps {
			testkit.NoError(t, err)
		} else {
			testkit.Says(t, err, "use sarama v1.61.1 or later")
		}
	}
}
