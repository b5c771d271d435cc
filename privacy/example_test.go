package privacy_test

import (
	"fmt"

	"github.com/watermill-spillway/spillway/privacy"
)

// Names of persons have no shape, so rules name where they stand.
func Example() {
	redactor, err := privacy.New(privacy.Rules{
		Metadata: []string{"customer", "*.email"},
		Patterns: []string{`customer "([^"]+)"`},
		Payload:  []string{"$.card.number", "$.users[*].name"},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(redactor.Text(`charge customer "Jane Doe": dial amqp://shop:hunter2@mq:5672/: connection refused`))
	fmt.Println(redactor.Metadata("customer", "Jane Doe"))
	fmt.Println(string(redactor.Payload([]byte(`{"id":7,"card":{"number":4242},"users":[{"name":"Jane Doe"}]}`))))
	// Output:
	// charge customer "[redacted]": dial amqp://shop:[redacted]@mq:5672/: connection refused
	// [redacted]
	// {"id":7,"card":{"number":"[redacted]"},"users":[{"name":"[redacted]"}]}
}

// A nil Redactor masks credentials.
func ExampleRedactor_Error() {
	var redactor *privacy.Redactor
	err := redactor.Error(fmt.Errorf("login: password=hunter2 for user ops"))
	fmt.Println(err)
	fmt.Println(privacy.None().Text("password=hunter2")) // masks nothing
	// Output:
	// login: password=[redacted] for user ops
	// password=hunter2
}
