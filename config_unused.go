package spillway

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/watermill-spillway/spillway/internal/safecall"
)

// everywhere is what several parts have, which Config itself or New sets too.
var everywhere = []string{"Shared"}

// setField returns the name of the first field of a part's configuration that is set, or "". Hooks are none: they may
// stand on a part that is off.
func setField(part any) string {
	v := reflect.ValueOf(part)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; !v.Field(i).IsZero() && !strings.HasPrefix(name, "On") &&
			!slices.Contains(everywhere, name) {
			return name
		}
	}
	return ""
}

// checkUnused returns an error for a field that is set of a part that is off.
func (c *Config) checkUnused() error {
	counts := c.CrashStore != nil || c.CrashLimit.Delivered != nil
	for _, part := range []struct {
		name   string
		config any
		on     bool
		remedy string
	}{
		{"Stages", c.Stages, c.Stages.Subscriber != nil, "no message would wait in a stage; set Config.Stages.Subscriber"},
		{"Receiver", c.Receiver, c.DB != nil || !safecall.IsNil(c.Idempotency), "no message would be recognised; set " +
			"Config.DB or Config.Idempotency"},
		{"CrashLimit", c.CrashLimit, counts || c.DB != nil, "nothing would be counted; set Config.DB or Config.CrashStore"},
		{"CrashLimit", c.CrashLimit, counts || c.CrashLimit.Max != 0 || c.DB == nil, "nothing would be counted; set " +
			"Config.CrashLimit.Max, such as 3"},
		{"Purge", c.Purge, c.Purge.Retention != 0, "no key would be purged; set Config.Purge.Retention"},
	} {
		if field := setField(part.config); !part.on && field != "" {
			//lint:ignore ST1005 Config is a name
			return fmt.Errorf("Config.%s.%s is set, and has no effect: %s", part.name, field, part.remedy)
		}
	}
	if c.CrashStore == nil && c.CrashLimit.Delivered != nil && c.CrashLimit.Heartbeat != 0 {
		return fmt.Errorf("Config.CrashLimit.Heartbeat is %s, and has no effect beside Delivered alone: the broker counts; "+
			"set Config.CrashStore, or leave Heartbeat out", c.CrashLimit.Heartbeat)
	}
	return nil
}
