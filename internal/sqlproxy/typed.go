package sqlproxy

import (
	"database/sql/driver"
	"reflect"
)

// Typed are rows of a driver's that tell of their columns what the driver tells. What drivers tell they know already; the
// values of those that tell nothing are database/sql's own.
type Typed struct{ driver.Rows }

func (r Typed) ColumnTypeScanType(index int) reflect.Type {
	if typed, ok := r.Rows.(driver.RowsColumnTypeScanType); ok {
		return typed.ColumnTypeScanType(index)
	}
	return reflect.TypeFor[any]()
}

func (r Typed) ColumnTypeDatabaseTypeName(index int) string {
	if typed, ok := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return typed.ColumnTypeDatabaseTypeName(index)
	}
	return ""
}

func (r Typed) ColumnTypeLength(index int) (int64, bool) {
	if typed, ok := r.Rows.(driver.RowsColumnTypeLength); ok {
		return typed.ColumnTypeLength(index)
	}
	return 0, false
}

func (r Typed) ColumnTypeNullable(index int) (nullable, ok bool) {
	if typed, is := r.Rows.(driver.RowsColumnTypeNullable); is {
		return typed.ColumnTypeNullable(index)
	}
	return false, false
}

func (r Typed) ColumnTypePrecisionScale(index int) (precision, scale int64, ok bool) {
	if typed, is := r.Rows.(driver.RowsColumnTypePrecisionScale); is {
		return typed.ColumnTypePrecisionScale(index)
	}
	return 0, 0, false
}
