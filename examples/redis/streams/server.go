package streams

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// CheckServer returns an error if Redis does not keep what it confirms: if it may evict streams when its memory is
// full, or has no append-only file. It cannot see whether the file is synced at each write (appendfsync always), nor
// what other clients trim.
func CheckServer(ctx context.Context, options redis.Options) (err error) {
	client := redis.NewClient(&options)
	defer func() { err = errors.Join(err, client.Close()) }()
	info, err := client.Info(ctx, "memory", "persistence").Result()
	if err != nil {
		return fmt.Errorf("ask Redis at %s what it keeps: %w", options.Addr, err)
	}
	settings := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		settings[name] = value
	}
	if policy := settings["maxmemory_policy"]; strings.HasPrefix(policy, "allkeys-") {
		err = fmt.Errorf("redis at %s evicts streams when its memory is full (maxmemory-policy %s): set maxmemory-policy noeviction", options.Addr, policy)
	}
	if settings["aof_enabled"] != "1" {
		err = errors.Join(err, fmt.Errorf("redis at %s loses what it confirmed when it ends (appendonly no): set "+
			"appendonly yes and appendfsync always", options.Addr))
	}
	return err
}
