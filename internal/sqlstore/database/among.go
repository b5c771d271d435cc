package database

import (
	"math/bits"
	"strconv"
	"strings"
)

// Among returns the condition that a column of numbers has one of the values, which are at least one. On PostgreSQL
// they are one array, as text that every driver can bind. Elsewhere the last value is repeated until their number is a
// power of two: statements of few lengths are prepared once each.
func (d *Database) Among(column string, values []int64) (condition string, args []any) {
	if d.kind == Postgres {
		text := make([]byte, 0, 8*len(values)+2)
		for i, value := range values {
			text = append(text, map[bool]byte{true: '{', false: ','}[i == 0])
			text = strconv.AppendInt(text, value, 10)
		}
		return column + ` = ANY(?::text::bigint[])`, []any{string(append(text, '}'))}
	}
	args = make([]any, 1<<bits.Len(uint(len(values)-1)))
	for i := range args {
		args[i] = values[min(i, len(values)-1)]
	}
	return column + ` IN (?` + strings.Repeat(`,?`, len(args)-1) + `)`, args
}
