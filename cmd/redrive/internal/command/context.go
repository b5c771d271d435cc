package command

import (
	"cmp"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/contexts"
	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
)

// contextData is a context for programs.
type contextData struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	contexts.Context
}

func (a *app) contexts() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Name the places where you work, and choose one",
		Long: `context keeps names for places: the API of a console with the file of your token, or a file as --config reads it, with a
database. Other commands work where --context or REDRIVE_CONTEXT says, else in the context in use.

The contexts are in redrive/contexts.json in the folder of the user's configurations (~/.config on Linux). They have addresses and paths
of files, and no secret. No other user may read or write the file.`,
		Example: `  redrive context add prod --url https://shop.example.com/deadletters/ --token-file ~/.secrets/shop
  redrive context add emergency --config ~/.secrets/shop-db.conf
  redrive context use prod
  redrive causes --context emergency`,
		Args: arguments(0, 0, "add, use, list, show or remove"),
		// It needs no database and no server, so what the settings say may be wrong.
		PersistentPreRunE: func(*cobra.Command, []string) error { return a.openScreen() },
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.contextAdd(), a.contextUse(), a.contextList(), a.contextShow(), a.contextRemove())
	return cmd
}

func (a *app) contextAdd() *cobra.Command {
	var use bool
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Name a place, or change what a name means",
		Long: `add names the API of --url, with the token in --token-file and the certificates of --ca, or the file of --config. The
token itself is not kept: it is read from its file whenever it is needed.`,
		Example: "  redrive context add prod --url https://shop.example.com/deadletters/ --token-file ~/.secrets/shop --use",
		Args:    arguments(1, 1, "a NAME, and --url with --token-file, or --config"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			s := &a.settings
			c := contexts.Context{URL: s.url, TokenFile: s.tokenFile, CA: s.ca, Config: s.file}
			switch {
			case (c.URL == "") == (c.Config == ""):
				return wrong("a context needs --url and --token-file, or --config FILE with a db")
			case c.Config != "" && c.TokenFile+c.CA != "":
				return wrong("--token-file and --ca belong to --url: the file of --config has its own")
			case c.URL != "" && c.TokenFile == "":
				return wrong("--token-file is empty: name the file of your token")
			case s.db != "":
				return wrong("--db has a password: write it into a file that only you may read, and name that with --config")
			}
			if c.URL != "" {
				_, err = apiFlags.Address(c.URL)
			}
			if err = firstOf(contexts.CheckName(args[0]), err); err != nil {
				return coded{err, exitWrong}
			}
			for _, path := range []*string{&c.TokenFile, &c.CA, &c.Config} {
				if *path != "" {
					if *path, err = filepath.Abs(*path); err != nil {
						return err
					}
				}
			}
			return a.changeContexts(args[0], func(f *contexts.File) error {
				if f.Contexts[args[0]] = c; use {
					f.Current = args[0]
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&use, "use", false, "use it from now on")
	return cmd
}

func (a *app) contextUse() *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Work in a context from now on",
		Long:    "use makes a context the default of all commands.",
		Example: "  redrive context use prod",
		Args:    arguments(1, 1, "the NAME of a context"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.changeContexts(args[0], func(f *contexts.File) error {
				f.Current = args[0]
				_, err := f.Get(args[0])
				return err
			})
		},
	}
}

func (a *app) contextRemove() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Forget a context",
		Long:    "remove forgets a context. The files that it names stay.",
		Example: "  redrive context remove emergency",
		Args:    arguments(1, 1, "the NAME of a context"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.changeContexts("", func(f *contexts.File) error {
				_, err := f.Get(args[0])
				if delete(f.Contexts, args[0]); f.Current == args[0] {
					f.Current = ""
				}
				return err
			})
		},
	}
}

// changeContexts writes what change makes of the contexts, and says how the one of a name stands.
func (a *app) changeContexts(name string, change func(*contexts.File) error) error {
	f, err := contexts.Read()
	if err != nil {
		return coded{err, exitWrong}
	}
	if err := change(f); err != nil {
		return coded{err, exitWrong}
	}
	if err := f.Write(); err != nil || name == "" {
		return err
	}
	return a.contextTable(f, name)
}

func (a *app) contextList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the contexts", Long: "list prints the contexts. The one in use has a star.",
		Example: "  redrive context list --json", Args: arguments(0, 0, "none"),
		RunE: func(*cobra.Command, []string) error {
			f, err := contexts.Read()
			if err != nil {
				return coded{err, exitWrong}
			}
			if len(f.Contexts) == 0 {
				a.screen.Note("there is no context: redrive context add makes one")
				return nil
			}
			return a.contextTable(f, f.Names()...)
		},
	}
}

func (a *app) contextShow() *cobra.Command {
	return &cobra.Command{
		Use: "show [NAME]", Short: "Show a context, or the one in use", Long: "show prints what a context says.",
		Example: "  redrive context show prod", Args: arguments(0, 1, "the NAME of a context, or nothing"),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := contexts.Read()
			if err != nil {
				return coded{err, exitWrong}
			}
			name := strings.Join(append(args, f.Current)[:1], "")
			if name == "" {
				return none("no context is in use: redrive context list prints them")
			}
			if _, err := f.Get(name); err != nil {
				return coded{err, exitNone}
			}
			return a.contextTable(f, name)
		},
	}
}

func (a *app) contextTable(f *contexts.File, names ...string) error {
	t := &screen.Table{Columns: []screen.Column{{Name: "", Style: screen.Green}, {Name: "NAME", Style: screen.Bold},
		{Name: "WHERE", Min: 20}, {Name: "TOKEN FILE", Min: 12, Drop: 1}, {Name: "CA", Drop: 2}}}
	for _, name := range names {
		c := f.Contexts[name]
		if a.json {
			if err := a.screen.JSON(contextData{name, name == f.Current, c}); err != nil {
				return err
			}
			continue
		}
		star := ""
		if name == f.Current {
			star = "*"
		}
		t.Row(star, name, cmp.Or(c.URL, c.Config), c.TokenFile, c.CA)
	}
	if !a.json {
		a.screen.Table(t)
	}
	return nil
}
