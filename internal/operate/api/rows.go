package api

// Row is a route, for tests and the document.
type Row struct {
	Name, Method, Pattern string
	Right                 uint8
	Keyed                 bool
	Body, Gives           any
	Status                int
	Query                 []string
	Says                  string
}

// Table returns all routes.
func Table() (rows []Row) {
	for _, r := range routes() {
		rows = append(rows, Row{r.name, r.method, r.pattern, uint8(r.right), r.keyed, r.body, r.gives, max(r.status, 200),
			r.query, r.says})
	}
	return rows
}

// Lists and Flags are the fields of queries that may have several values, and those that are set or not.
func Lists() []string { return lists }
func Flags() []string { return flags }
