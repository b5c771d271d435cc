package database

import (
	"errors"
	"fmt"
)

const maxService = 100

// ValidateService returns an error unless service can be the name under which a store on a database of this kind keeps
// what is its own. On a server a name is required. On SQLite, where a file is a service's own, it may be empty.
func ValidateService(kind Kind, service string) error {
	if service == "" && kind != SQLite {
		return errors.New(`the Service is empty: name the service, such as "shop". Several services may use this database ` +
			"server, and two of them with a handler of the same name would take each other's messages for their own")
	}
	if len(service) > maxService {
		return fmt.Errorf("the Service has %d bytes: give it a name of at most %d", len(service), maxService)
	}
	for _, r := range service {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-') {
			return fmt.Errorf("the Service %q has the character %q: use letters a to z, digits, dots, underscores and hyphens",
				service, r)
		}
	}
	return nil
}
