package notify

import (
	"context"
	"log/slog"
)

// Slog returns a Sink that writes a line for each notice to logger: at level Warn, and at level Info if the notice says
// that something is over. The names of the fields are those of the metrics and of the library's own log. A nil logger
// is slog.Default().
func Slog(logger *slog.Logger) Sink {
	return func(ctx context.Context, n Notice) error {
		to := logger
		if to == nil {
			to = slog.Default()
		}
		level := slog.LevelWarn
		if n.Status == StatusResolved {
			level = slog.LevelInfo
		}
		attrs := []slog.Attr{slog.String("notice", n.ID), slog.String("kind", string(n.Kind)),
			slog.String("status", string(n.Status))}
		for _, field := range [][2]string{{"service", n.Service}, {"instance", n.Instance}, {"subject", n.Subject},
			{"cause", n.Cause}, {"topic", n.Topic}, {"handler", n.Handler}, {"class", n.Class}, {"reason", n.Reason},
			{"description", n.Description}, {"link", n.Link}} {
			if field[1] != "" {
				attrs = append(attrs, slog.String(field[0], field[1]))
			}
		}
		attrs = append(attrs, slog.Int64("count", n.Count), slog.Int64("total", n.Total), slog.Time("first", n.First),
			slog.Time("last", n.Last))
		if n.Missed > 0 {
			attrs = append(attrs, slog.Int("missed", n.Missed))
		}
		to.LogAttrs(ctx, level, n.Title, attrs...)
		return nil
	}
}
