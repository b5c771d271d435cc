package crashlimit_test

import (
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/crashlimit/sqlmarks"
)

func init() { crashlimit.NewSQLStore = sqlmarks.NewStore }
