package campaigns_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "modernc.org/sqlite" // the driver is the application's choice

	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// must is for examples: a program handles its errors.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// Ann looks what a campaign would do, starts it, and waits for its end. A worker of the service does the work.
func Example() {
	dir := must(os.MkdirTemp("", "campaigns"))
	defer func() { _ = os.RemoveAll(dir) }()
	db := must(sql.Open("sqlite", "file:"+filepath.Join(dir, "letters.db")+"?_pragma=journal_mode(WAL)"))
	defer func() { _ = db.Close() }()
	ctx := context.Background()
	store := must(letters.NewStore(ctx, db, letters.Config{Service: "shop"}))
	msg := message.NewMessage("7", []byte(`{"order":12345678901234567890,"currency":"DM"}`))
	letter := poison.Letter{Original: msg, Origin: poison.Origin{Topic: "orders", Handler: "billing"}}
	if err := store.Publish("orders.dlq", letter.Encode()); err != nil {
		panic(err)
	}

	all := must(campaigns.New(ctx, store, campaigns.Config{Allow: []string{"orders"}}))
	live := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	worker := must(campaigns.NewWorker(all, live, campaigns.WorkerConfig{Poll: 10 * time.Millisecond}))
	router := message.NewDefaultRouter(watermill.NopLogger{})
	router.AddPlugin(worker.Plugin)
	router.AddConsumerHandler("billing", "orders", live, func(msg *message.Message) error {
		fmt.Printf("billing: %s\n", msg.Payload)
		return nil
	})
	ended := make(chan error)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()

	request := campaigns.Request{
		Filter: letters.Filter{Handlers: []string{"billing"}}, Rate: 50,
		Edit: &campaigns.Edit{Merge: []byte(`{"currency":"EUR"}`)},
		Act:  campaigns.Act{By: "ann", Reason: "the currency is EUR since 2002"},
	}
	plan, err := all.Plan(ctx, request)
	if err := errors.Join(request.Edit.Validate(), err); err != nil {
		panic(err)
	}
	fmt.Println("would redrive", plan.Letters)
	c, err := all.Start(ctx, request)
	for err == nil && c.State != campaigns.Finished {
		time.Sleep(10 * time.Millisecond)
		c, err = all.Get(ctx, c.ID)
	}
	if err != nil {
		panic(err)
	}
	fmt.Println("redriven", c.Redriven)
	if err := errors.Join(router.Close(), <-ended); err != nil {
		panic(err)
	}
	soon, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	fmt.Println(worker.Run(soon)) // without a router, until the context ends
	// Output:
	// would redrive 1
	// billing: {"order":12345678901234567890,"currency":"EUR"}
	// redriven 1
	// <nil>
}

// A large campaign needs a second person. It can be slowed down, paused, resumed and given up, by any process.
func ExampleCampaigns() {
	dir := must(os.MkdirTemp("", "campaigns"))
	defer func() { _ = os.RemoveAll(dir) }()
	db := must(sql.Open("sqlite", "file:"+filepath.Join(dir, "letters.db")+"?_pragma=journal_mode(WAL)"))
	defer func() { _ = db.Close() }()
	ctx := context.Background()
	store := must(letters.NewStore(ctx, db, letters.Config{Service: "shop"}))
	for _, id := range []string{"1", "2"} {
		letter := poison.Letter{Original: message.NewMessage(id, nil), Origin: poison.Origin{Topic: "orders"}}
		if err := store.Publish("orders.dlq", letter.Encode()); err != nil {
			panic(err)
		}
	}
	all := must(campaigns.New(ctx, store, campaigns.Config{Allow: []string{"orders"}, ApproveOver: 1}))
	show := func(c campaigns.Campaign, err error) {
		if err != nil {
			panic(err)
		}
		fmt.Println(c.State, c.Rate, c.Selected, c.State.Ended())
	}
	ann := campaigns.Act{By: "ann", Reason: "INC-7: the bank is back"}
	c, err := all.Start(ctx, campaigns.Request{Rate: 10, Act: ann})
	show(c, err)
	show(all.Approve(ctx, c.ID, campaigns.Act{By: "bob", Reason: "I looked at ten of them"}))
	show(all.SetRate(ctx, c.ID, 2, ann))
	show(all.Pause(ctx, c.ID, ann))
	show(all.Resume(ctx, c.ID, ann))
	show(all.Cancel(ctx, c.ID, ann))
	ended, err := all.List(ctx, campaigns.List{States: []campaigns.State{campaigns.Cancelled}})
	fmt.Println(len(ended), err)
	fmt.Println(all.Purge(ctx, time.Now().Add(time.Hour), ann)) // which letters it had; its record stays
	// Output:
	// approval 10 2 false
	// running 10 2 false
	// running 2 2 false
	// paused 2 2 false
	// running 2 2 false
	// cancelled 2 2 true
	// 1 <nil>
	// 2 <nil>
}
