package sqlproxy

import (
	"database/sql/driver"
	"reflect"
)

// typed are a driver's rows, with what the driver knows of their columns. If it knows nothing the answer is the one
// that database/sql itself gives for such a driver.
type typed struct{ driver.Rows }

func (r typed) ColumnTypeScanType(index int) reflect.Type {
	if typed, ok := r.Rows.(driver.RowsColumnTypeScanType); ok {
		return typed.ColumnTypeScanType(index)
	}
	return reflect.TypeFor[any]()
}

func (r typed) ColumnTypeDatabaseTypeName(index int) string {
	if typed, ok := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return typed.ColumnTypeDatabaseTypeName(index)
	}
	return ""
}

func (r typed) ColumnTypeLength(index int) (int64, bool) {
	if typed, ok := r.Rows.(driver.RowsColumnTypeLength); ok {
		return typed.ColumnTypeLength(index)
	}
	return 0, false
}

func (r typed) ColumnTypeNullable(index int) (nullable, ok bool) {
	if typed, is := r.Rows.(driver.RowsColumnTypeNullable); is {
		return typed.ColumnTypeNullable(index)
	}
	return false, false
}

func (r typed) ColumnTypePrecisionScale(index int) (precision, scale int64, ok bool) {
	if typed, is := r.Rows.(driver.RowsColumnTypePrecisionScale); is {
		return typed.ColumnTypePrecisionScale(index)
	}
	return 0, 0, false
}
