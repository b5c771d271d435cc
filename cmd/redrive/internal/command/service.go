package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/console"
)

// roles are the values of --access.
var roles = map[string]console.Role{
	"look-without-payload": console.LookWithoutPayload, "look": console.Look, "operate": console.Operate,
	"approve": console.Approve,
}

// serving are the flags of the command console.
type serving struct {
	addr, access, byHeader string
	origins, allow         []string

	role  console.Role
	local bool // the address can be reached from this machine alone
	by    string
}

func (a *app) console() *cobra.Command {
	var s serving
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve the letters as web pages, for a browser",
		Long: `console serves what the other commands show and do as web pages, until Ctrl-C. On an address of this machine alone, which is
the default, everyone who reaches it may redrive, edit and discard, under the name of --by. Other users of this machine can reach
it too: give --access look if there are some.

An address that other machines reach needs --access, which says what everyone there may do: look-without-payload, look, operate,
or approve. There is no TLS and no log-in: put a proxy before it that has both, and names the person in the header of --by-header.
If the proxy changes the Host header, name the origin that people see with --origin. A service can mount the console in its own
server instead, with rights for each person: package redrive/console.

Secrets are masked as redrive help privacy says, and sealed letters need --keys. Campaigns that are started here are worked on by
the service, or by redrive work.`,
		Example: `  redrive console
  redrive console --addr 127.0.0.1:9000 --access look
  redrive console --addr :8080 --access operate --by-header X-Forwarded-User --origin https://letters.example.com`,
		Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.by = a.settings.by
			if err := cmp.Or(s.check(), a.checkDecode()); err != nil {
				return err
			}
			return a.serve(cmd.Context(), &s)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&s.addr, "addr", "127.0.0.1:8080", "address to listen at; port 0 takes a free one")
	f.StringVar(&s.access, "access", "",
		"look-without-payload, look, operate or approve (default on this machine: operate)")
	f.StringVar(&s.byHeader, "by-header", "",
		"header in which a proxy names the person; without a name there is no access")
	f.StringArrayVar(&s.origins, "origin", nil, "origin that people see, if a proxy changes the Host header")
	a.decodeFlag(f)
	f.StringArrayVar(&s.allow, "allow", nil, "topic that letters may go to; workers have a list of their own in any case")
	_ = cmd.RegisterFlagCompletionFunc("access",
		cobra.FixedCompletions([]string{"look-without-payload", "look", "operate", "approve"},
			cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (s *serving) check() error {
	host, _, err := net.SplitHostPort(s.addr)
	if err != nil {
		return wrong("--addr is %q: use a host and a port, such as 127.0.0.1:8080", s.addr)
	}
	s.local = here(host)
	if s.access == "" && !s.local {
		return wrong("--addr is %s, which other machines can reach: say with --access what everyone there may do: "+
			"look-without-payload, look, operate or approve", s.addr)
	}
	if s.access == "" {
		s.access = "operate"
	}
	var known bool
	if s.role, known = roles[s.access]; !known {
		return wrong("--access is %q: use look-without-payload, look, operate or approve", s.access)
	}
	return nil
}

// here reports whether a host is this machine, and no other can reach it.
func here(host string) bool {
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")).IsLoopback()
}

// who says who sends a request. On an address of this machine alone, a request that was forwarded comes from elsewhere.
// One that asks for another name comes from a page that had its own name resolve to this machine.
func (s *serving) who(r *http.Request) (console.Person, error) {
	if s.byHeader != "" {
		name := r.Header.Get(s.byHeader)
		if name == "" {
			return console.Person{}, nil
		}
		return console.Person{Name: name, Role: s.role}, nil
	}
	if !s.local {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		return console.Person{Name: s.by + " at " + host, Role: s.role}, nil
	}
	if who, err := console.Loopback(r); err != nil || who.Role == 0 {
		return console.Person{}, err
	}
	return console.Person{Name: s.by, Role: s.role}, nil
}

// serve listens until ctx ends.
func (a *app) serve(ctx context.Context, s *serving) error {
	all, _, err := a.openCampaigns(ctx, true, campaigns.Config{Allow: s.allow,
		Shared: observe.Shared{Privacy: a.privacy}})
	if err != nil {
		return err
	}
	logger := &noteLogger{screen: a.screen}
	pages, err := console.New(console.Config{Campaigns: all, Access: s.who, TrustedOrigins: s.origins, Decode: a.decoder(),
		Shared: observe.Shared{Privacy: a.privacy, Logger: logger}})
	if err != nil {
		return wrong("--origin: %w", err)
	}
	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		return fmt.Errorf("--addr: %w", err)
	}
	server := &http.Server{
		Handler: pages, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 5 * time.Minute,
		IdleTimeout: 2 * time.Minute, BaseContext: func(net.Listener) context.Context {
			return ctx
		}, ErrorLog: log.New(logger, "", 0),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	url := "http://" + listener.Addr().String() + "/"
	err = a.answer(map[string]string{"url": url}, "the dead letters of %s are at %s; Ctrl-C ends it", a.owner(), url)
	if err == nil {
		select {
		case err = <-ended:
			return fmt.Errorf("serve: %w", err)
		case <-ctx.Done():
		}
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if server.Shutdown(closing) != nil {
		_ = server.Close() // what still runs has lost its context
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

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
		"redrives after which a letter is quarantined")
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
