package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/connect"
	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/seal"
)

// Process is what a process has.
type Process struct {
	Args     []string
	In       io.Reader
	Out, Err io.Writer
	// Env looks up environment variables. Default: os.Getenv.
	Env func(string) string
}

// app is one run of the command.
type app struct {
	process  Process
	settings config
	json     bool
	color    string
	screen   *screen.Screen
	privacy  *privacy.Redactor
	unknown  string // a command that there is not, whose help was asked for
	sealer   *seal.Sealer
	clear    []string // metadata that stays readable in what this run seals
	decode   string   // program that decodes payloads
	closers  []func() error
}

// Main runs the command line, and returns its exit code.
func Main(ctx context.Context, p Process) int {
	if p.Env == nil {
		p.Env = os.Getenv
	}
	a := &app{process: p}
	root := a.root()
	root.SetArgs(p.Args)
	err := root.ExecuteContext(ctx)
	if err == nil && a.unknown != "" {
		err = wrong("unknown command %q: the commands are %s; redrive --help says what they do", a.unknown,
			strings.Join(namesOf(root), ", "))
	}
	for _, closing := range a.closers {
		_ = closing()
	}
	if of := (*operate.Wrong)(nil); errors.As(err, &of) && !errors.As(err, new(coded)) {
		err = flagged(err) // by a server
	}
	if connect.MayNot(err) {
		err = fmt.Errorf("this role may not change anything: use one that may INSERT, UPDATE and DELETE: %w", err)
	}
	if err != nil {
		a.fail(ctx, err)
	}
	return exitCode(ctx, err)
}

// fail prints an error. A mistake before the flags were read finds no screen yet.
func (a *app) fail(ctx context.Context, err error) {
	out := a.screen
	if out == nil {
		out, _ = screen.New(screen.Config{In: a.process.In, Out: a.process.Out, Err: a.process.Err, Env: a.process.Env,
			Color: "never"})
	}
	if errors.Is(err, errDetached) {
		return
	}
	if exitCode(ctx, err) == exitInterrupted {
		out.Note("redrive: interrupted")
		return
	}
	out.Fail(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "redrive",
		Short: "Look at dead letters, and bring them back",
		Long: `redrive looks at the dead letters of a service, and brings them back when their cause is repaired.

From the alert to the closed incident:

  redrive doctor                            is everything there?
  redrive causes                            what failed, how often, since when
  redrive show 1042                         one letter: its story and its payload
  redrive redrive --cause 9f3a --dry-run    what would come back, and where to
  redrive redrive --cause 9f3a --rate 50 --canary 10 --reason …
  redrive discard --cause 9f3a --reason …   give up what is of no use
  redrive audit --since 1h                  who did what, and why

--url and --token-file name the API of a service's console, --db and --service a database. They can stand in the environment or in a
file: see redrive help config.`,
		Example: `  export REDRIVE_URL=https://shop.example.com/deadletters/ REDRIVE_TOKEN_FILE=~/.secrets/shop
  export SPILLWAY_DB=postgres://ops@db.internal/shop SPILLWAY_SERVICE=shop
  redrive causes
  redrive list --cause 9f3a --since 2h
  redrive causes --json | jq -r .cause`,
		Version:       version(),
		SilenceErrors: true, SilenceUsage: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return wrong("unknown command %q: redrive --help lists the commands", args[0])
			}
			return nil
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.openScreen(); err != nil {
				return err
			}
			if err := a.settings.load(cmd, a.process.Env); err != nil {
				return err
			}
			return a.protect()
		},
	}
	root.SetVersionTemplate("redrive {{.Version}}\n")
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd == root && cmd.Flags().NArg() > 0 {
			a.unknown = cmd.Flags().Arg(0)
			return
		}
		help(cmd, args)
	})
	root.Run = func(cmd *cobra.Command, _ []string) { _ = cmd.Help() }
	root.SetIn(a.process.In)
	root.SetOut(screen.Safely(a.process.Out))
	root.SetErr(screen.Safely(a.process.Err))
	root.SetFlagErrorFunc(flagError)
	flags := root.PersistentFlags()
	flags.SortFlags = false
	a.settings.flags(flags)
	flags.BoolVar(&a.json, "json", false, "print JSON, one object a line")
	flags.StringVar(&a.color, "color", "auto", "auto, always or never")
	root.AddGroup(&cobra.Group{ID: "look", Title: "Look:"}, &cobra.Group{ID: "act", Title: "Act:"},
		&cobra.Group{ID: "more", Title: "More:"})
	groups := map[string][]*cobra.Command{
		"look": {a.causes(), a.list(), a.show(), a.audit(), a.campaigns(), a.watch(), a.sequences(),
			a.policies(), a.console(),
			a.doctor()},
		"act": {a.redrive(), a.work(), a.breaker(), a.cause(),
			a.discard(),
			a.restore(), a.purge(), a.erase(), a.reseal(), a.drain(), a.export(), a.imports()},
	}
	for _, s := range steerings {
		groups["act"] = append(groups["act"], a.steer(s))
	}
	for group, commands := range groups {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	refuseEmpty(root)
	root.SetHelpCommandGroupID("more")
	root.SetCompletionCommandGroupID("more")
	root.AddCommand(a.man(),
		topic("exit-codes", "What the exit codes mean", exitCodes),
		topic("config", "How redrive finds the API, the database and the brokers", configHelp),
		topic("privacy", "What is masked, and how to see it", privacyHelp),
		topic("sealing", "How sealed letters are opened", sealingHelp),
		topic("json", "What --json prints", jsonHelp))
	return root
}

// openScreen opens what the command prints on.
func (a *app) openScreen() (err error) {
	a.screen, err = screen.New(screen.Config{
		In: a.process.In, Out: a.process.Out, Err: a.process.Err, JSON: a.json, Color: a.color, Env: a.process.Env,
	})
	if err != nil {
		return coded{err, exitWrong}
	}
	return nil
}

// namesOf are the names of the commands.
func namesOf(root *cobra.Command) (names []string) {
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// topic is a page of help.
func topic(name, short, long string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, Long: long}
}

// arguments wants from least to most arguments.
func arguments(least, most int, want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return wrong("%d arguments: redrive %s takes %s", len(args), cmd.Name(), want)
		}
		if slices.Contains(args, "") {
			return wrong("an argument is empty: redrive %s takes %s; is a variable of the shell not set?", cmd.Name(),
				want)
		}
		return nil
	}
}

// release is the version of a binary of make release, which is built in a tree and so has none of its module.
var release string

// version is that of this program, and of the Go that built it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(release, "of an unknown version")
	}
	return cmp.Or(release, info.Main.Version, "(devel)") + ", " + info.GoVersion
}

// man writes manual pages, for those who package the command.
func (a *app) man() *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Short: "Write the manual pages into a folder", Hidden: true,
		Args: arguments(1, 1, "a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Title: "REDRIVE", Section: "1", Source: "Spillway"}, args[0])
		},
	}
}

// logger prints the errors of clients as notes, and nothing else.
func (a *app) logger() watermill.LoggerAdapter { return &noteLogger{screen: a.screen} }

type noteLogger struct {
	mu     sync.Mutex
	screen *screen.Screen
}

func (l *noteLogger) Error(msg string, err error, _ watermill.LogFields) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.screen.Note("%s: %v", msg, err)
}
func (*noteLogger) Info(string, watermill.LogFields)                   {}
func (*noteLogger) Debug(string, watermill.LogFields)                  {}
func (*noteLogger) Trace(string, watermill.LogFields)                  {}
func (l *noteLogger) With(watermill.LogFields) watermill.LoggerAdapter { return l }

// Write is what an http.Server logs.
func (l *noteLogger) Write(line []byte) (int, error) {
	l.Error("console", errors.New(strings.TrimSpace(string(line))), nil)
	return len(line), nil
}
