package webhook_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/watermill-spillway/spillway/observe/notify"
	"github.com/watermill-spillway/spillway/observe/notify/webhook"
)

// A receiver checks the signature of each request before it looks at the body.
func ExampleVerify() {
	secret := []byte("32 bytes of a random source, say") // of the sender and the receiver
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err == nil {
			err = webhook.Verify(secret, r.Header, body, 0)
		}
		if err != nil {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		fmt.Println("a notice arrived:", r.Header.Get(webhook.HeaderID))
	}))
	defer receiver.Close()

	send, err := webhook.New(webhook.Config{URL: receiver.URL, Secret: secret, Client: receiver.Client()})
	if err != nil {
		log.Fatal(err)
	}
	forged, err := webhook.New(webhook.Config{URL: receiver.URL, Secret: []byte("a guess of some length"), Client: receiver.Client()})
	if err != nil {
		log.Fatal(err)
	}
	chat, err := webhook.New(webhook.Config{URL: receiver.URL, Secret: secret, Client: receiver.Client(), Body: webhook.Slack})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(send(context.Background(), notify.Notice{ID: "1"}), chat(context.Background(), notify.Notice{ID: "2"}))
	fmt.Println(forged(context.Background(), notify.Notice{ID: "3"}))
	// Output:
	// a notice arrived: 1
	// a notice arrived: 2
	// <nil> <nil>
	// webhook: the answer is 401 Unauthorized: "no"
}
