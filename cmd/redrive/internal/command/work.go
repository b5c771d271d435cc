package command

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

func (a *app) work() *cobra.Command {
	var config campaigns.Config
	var once bool
	var lease time.Duration
	cmd := &cobra.Command{
		Use:   "work",
		Short: "Work on campaigns from here, for services that do not",
		Long: `work redrives the letters of the service's campaigns through --broker until Ctrl-C, beside other workers if there are any. A
letter goes only to a topic of --allow. If work is killed, another worker takes its letters after --lease. The letter that was
being published may come twice, with the same id. Sealed letters need --keys: without, they stay as they are.`,
		Example: `  redrive work --broker kafka://kafka-1:9092 --allow orders --allow payments
  redrive work --broker sql --allow orders --once`,
		Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if len(config.Allow) == 0 {
				return wrong("--allow is empty: name the topics that letters may go to, because a letter's own metadata can be forged")
			}
			all, _, err := a.openCampaigns(ctx, true, config)
			if err != nil {
				return err
			}
			broker, err := a.brokerOf(ctx, "")
			if err != nil {
				return err
			}
			worker, err := campaigns.NewWorker(all, broker, campaigns.WorkerConfig{Lease: lease})
			if err != nil {
				return err
			}
			a.screen.Note("working on the campaigns of %s; Ctrl-C stops after the letters in hand", a.owner())
			if !once {
				return worker.Run(ctx)
			}
			return workOnce(ctx, all, worker)
		},
	}
	cmd.Flags().StringArrayVar(&config.Allow, "allow", nil, "topic that letters may go to (required)")
	cmd.Flags().IntVar(&config.MaxRedrives, "max-redrives", redrive.DefaultMaxRedrives,
		"redrives after which a letter "+
			"is quarantined")
	cmd.Flags().DurationVar(&lease, "lease", 30*time.Second,
		"how long letters in hand stay reserved if this process is killed")
	cmd.Flags().BoolVar(&once, "once", false, "end when no campaign can go on")
	return cmd
}

// workOnce ends when no campaign is running, or about to.
func workOnce(ctx context.Context, all *campaigns.Campaigns, worker *campaigns.Worker) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var looking error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer stop()
		for ctx.Err() == nil {
			active, err := all.List(ctx,
				campaigns.List{States: []campaigns.State{campaigns.Selecting, campaigns.Running, campaigns.Canary},
					Limit: 1})
			if err != nil || len(active) == 0 {
				looking = err
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(lookEvery):
			}
		}
	}()
	err := worker.Run(ctx)
	<-done
	if errors.Is(looking, context.Canceled) {
		looking = nil
	}
	return errors.Join(err, looking)
}
