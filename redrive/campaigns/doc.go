// Package campaigns redrives dead letters of a letters.Store by campaigns: started by a person, worked on by the
// service, and on record.
//
//	all, err := campaigns.New(ctx, store, campaigns.Config{Allow: []string{"orders"}})
//	worker, err := campaigns.NewWorker(all, live, campaigns.WorkerConfig{})
//	router.AddPlugin(worker.Plugin)
//
//	plan, err := all.Plan(ctx, request)    // a dry run
//	c, err := all.Start(ctx, request)      // from any process: the command line, a console
//
// A campaign lives in the database. Any instance of the service that runs a Worker works on it, and the process that
// started it may go. Several workers share a campaign: no letter is done twice, and Request.Rate is the rate of all of
// them together.
//
// # The life of a campaign
//
//	selecting ▶ (approval) ▶ (scheduled) ▶ running ◀──▶ canary
//	                                        │  ▲ │
//	                                 paused ◀──┘ └──▶ finished
//
// Start writes down which letters wait: what arrives later is not caught. Letters that another campaign has are left
// out, as a unique index says. Workers take the letters in the order of their first failure, publish each, and mark it
// in the store.
//
// A campaign pauses itself, with the reason, in these cases:
//   - more than the share Request.StopAt of its letters came back dead, or of its canary
//   - the target refused three letters in a row; with Request.ResumeAfter it resumes by itself
//
// Approval by a second person (Request.Approval, Config.ApproveOver) stays, because a campaign can publish a million
// messages at a word, and the console has a role for it. Request.NotBefore stays for a redrive at night, when the
// person who planned it sleeps. Both are one state each, and cost nothing to a campaign without them.
//
// Resume, Cancel, SetRate and Approve take an Act: who does it, and why. The console and redrive campaigns show what
// was done with a campaign, letters.Store.History what was done with a letter.
//
// A Policy of Config.Policies is a standing rule by which workers start campaigns themselves. Each decision is one
// transaction, alone among all instances, and its result is the row of the campaign.
//
// # What is promised
//
// A letter is marked after its publisher took it. If a worker is killed, the letters that it had published and not
// marked may be published a second time, with the same id. That is one letter if Request.Concurrency is 1. Otherwise it
// is at most Concurrency and 256 together. A letter that arrives again while it is being published can be published by a
// second worker too. All other letters are published once. A letter that was not published waits as before.
//
// Request.Rate is true over any time in which the campaign runs: a time in which it stood still, of at most ten
// seconds, is made up for at 1.1 of the rate.
//
// # What is not promised
//
// Order, if Concurrency is above 1, if several workers run, or if a letter was refused. Names are not verified: who may
// act, and who is who, is for the program that calls.
package campaigns
