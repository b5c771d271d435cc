package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/idempotency"
)

// kind is why a message fails, or "".
type kind string

const (
	fine         kind = ""
	noRepository kind = "no_repository" // the handler does not know events of organisations: a bug
	noAssets     kind = "no_assets"     // the handler panics on a release without assets: a bug
	typo         kind = "typo"          // the sender wrote "opend"
	cutShort     kind = "cut_short"     // half of the payload is missing
)

// input is what was published.
type input struct {
	messages []*message.Message
	kinds    map[string]kind // by id
}

// share is how many of the failing messages are of each kind: 300, 150, 100 and 50 of 600.
var share = map[kind]float64{noRepository: 1.0 / 2, noAssets: 1.0 / 4, typo: 1.0 / 6, cutShort: 1.0 / 12}

// newInput makes n messages, of which failing fail, in an order drawn by the seed.
func newInput(n, failing int, seed uint64) (*input, error) {
	events, err := webhooks.Load("")
	if err != nil {
		return nil, err
	}
	of := map[kind][]*message.Message{}
	for _, event := range events {
		var parts struct{ Repository, Release *struct{} }
		if err := json.Unmarshal(event.Payload, &parts); err != nil {
			return nil, err
		}
		switch {
		case parts.Release != nil:
			of[noAssets] = append(of[noAssets], event)
		case parts.Repository == nil:
			of[noRepository] = append(of[noRepository], event)
		case len(event.Payload) < 8<<10:
			of[fine] = append(of[fine], event)
		}
	}
	of[cutShort] = of[fine]
	var kinds []kind
	for _, k := range []kind{noRepository, noAssets, typo, cutShort} {
		for range int(share[k]*float64(failing) + 0.5) {
			kinds = append(kinds, k)
		}
	}
	for len(kinds) < n {
		kinds = append(kinds, fine)
	}
	random := rand.New(rand.NewPCG(seed, seed))
	random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	in := &input{kinds: map[string]kind{}}
	for i, k := range kinds {
		id := fmt.Sprintf("delivery-%05d", i+1)
		in.kinds[id] = k
		payload := []byte(fmt.Sprintf(`{"action":"opend","number":%d,"repository":{"id":9007199254740993,"full_name":"shop/web"},"sender":"importer"}`, i+1))
		if k != typo {
			payload = of[k][random.IntN(len(of[k]))].Payload
		}
		if k == cutShort {
			payload = payload[:len(payload)/2]
		}
		in.messages = append(in.messages, message.NewMessage(id, payload))
	}
	return in, nil
}

// handler stores events under their repository.
type handler struct {
	fixed bool
	bind  func(string) string
}

func (h handler) handle(msg *message.Message) error {
	var event struct {
		Action     string
		Repository *struct {
			FullName string `json:"full_name"`
		}
		Release *struct{ Assets []struct{ Name string } }
	}
	if err := json.Unmarshal(msg.Payload, &event); err != nil {
		return fmt.Errorf("read the event: %w", err)
	}
	if event.Action == "opend" {
		return classify.Permanent(errors.New(`the action "opend" is unknown`), classify.Reason("unknown_action"))
	}
	owner := "github"
	switch {
	case event.Repository != nil:
		owner = event.Repository.FullName
	case !h.fixed:
		return classify.Permanent(errors.New("the event has no repository"), classify.Reason("no_repository"))
	}
	if event.Release != nil && !h.fixed {
		event.Action += " " + event.Release.Assets[0].Name // the bug
	}
	_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(),
		h.bind(`INSERT INTO events (id, event, owner, action) VALUES (?, ?, ?, ?)`),
		msg.UUID, "webhook", owner, event.Action)
	return err
}
