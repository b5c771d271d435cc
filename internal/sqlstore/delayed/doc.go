// Package delayed is the store of package delay, which says what it promises, and the relay that publishes what is due.
//
//	store, err := delayed.NewStore(ctx, db, "shop")
//	relay, err := delayed.NewRelay(store, publisher, delayed.RelayConfig{})
//	router.AddPlugin(relay.Plugin)
//
//	err = store.Put(ctx, "reminders", msg, 36*time.Hour)
package delayed
