package command

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/contexts"
	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
)

const configHelp = `A value is taken from the first place that has it:

  1. the flag                     --url, --token-file, --ca, --db, --service, --broker, --by, --redact, --privacy, --keys
  2. the context                  of --context or REDRIVE_CONTEXT; else the one in use, if no flag, no variable and no file of
                                  --config has a url or db: redrive help context
  3. the environment              REDRIVE_URL, REDRIVE_TOKEN_FILE, REDRIVE_CA, SPILLWAY_DB, SPILLWAY_SERVICE, SPILLWAY_BROKER,
                                  SPILLWAY_BY, SPILLWAY_REDACT, SPILLWAY_PRIVACY, SPILLWAY_KEYS
  4. the file of --config or SPILLWAY_CONFIG, else redrive.conf in the current folder, else
     redrive/redrive.conf in the folder of the user's configurations (~/.config on Linux)

The first place that has url or db says where the letters are. A token goes only to the url of its own place; a flag replaces it.

Over url the server says who you are, masks, and opens what is sealed; the service is the server's. url is https, apart from
addresses of this machine. The file of the token is read for each request: chmod 600.

The file has a value a line, under the names of the flags:

  db      = postgres://ops@db.internal/shop     or url and token-file
  service = shop
  broker  = kafka://kafka-1:9092,kafka-2:9092
  redact  = jq 'del(.card)'
  privacy = /etc/redrive/privacy.json
  keys    = /run/secrets/letters.keys

Databases:

  postgres://user:password@host:5432/name    ~/.pgpass and PGPASSWORD work too
                                             ?sslmode=verify-full&sslrootcert=ca.pem&sslcert=own.pem&sslkey=own.key
  mysql://user:password@host:3306/name       MariaDB too; ?tls=true, or ?ca=ca.pem&cert=own.pem&key=own.key
  sqlite:///path/to/file.db

Brokers:

  kafka://host:9092,host:9092                ?tls=true, or ?ca=ca.pem&cert=own.pem&key=own.key
  kafka://user:password@host:9092            SASL: plain, or ?sasl=scram-sha-512 or scram-sha-256
  amqp://user:password@host:5672,host:5672/
  amqps://user:password@host:5671/           ?cacertfile=ca.pem&certfile=own.pem&keyfile=own.key&auth_mechanism=external
  sql                                        tables of watermill-sql in --db

A password on the command line can be read by every user of the machine. Prefer the environment or the file.`

// config has what flags, environment and files say in common.
type config struct {
	url, tokenFile, ca, db, service, broker, by, redact, privacy, keys, file, context string
	given                                                                             func(flag string) bool
}

// names are the settings that a file may have.
func (s *config) names() map[string]*string {
	return map[string]*string{"url": &s.url, "token-file": &s.tokenFile, "ca": &s.ca, "db": &s.db,
		"service": &s.service,
		"broker":  &s.broker, "by": &s.by, "redact": &s.redact, "privacy": &s.privacy, "keys": &s.keys}
}

// variable is the variable of the environment that has a setting.
func variable(name string) string {
	switch name {
	case "url", "token-file", "ca":
		return "REDRIVE_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	}
	return "SPILLWAY_" + strings.ToUpper(name)
}

func (s *config) flags(flags *pflag.FlagSet) {
	flags.StringVar(&s.url, "url", "", "address of the API of a console (REDRIVE_URL)")
	flags.StringVar(&s.tokenFile, "token-file", "", "file of your token for the API (REDRIVE_TOKEN_FILE)")
	flags.StringVar(&s.ca, "ca", "", "file of the certificates that vouch for the API; default: those of the system (REDRIVE_CA)")
	flags.StringVar(&s.context, "context", "", "context to work in (REDRIVE_CONTEXT): redrive context lists them")
	flags.StringVar(&s.db, "db", "", "URL of the database, without an API (SPILLWAY_DB)")
	flags.StringVar(&s.service, "service", "", "owner of the letters in the database (SPILLWAY_SERVICE)")
	flags.StringVar(&s.broker, "broker", "", "URL of the broker, where one is needed (SPILLWAY_BROKER)")
	flags.StringVar(&s.by, "by", "", "who you are, for the record (SPILLWAY_BY; default: user@host); an API knows it")
	flags.StringVar(&s.redact, "redact", "", "program through which payloads are shown (SPILLWAY_REDACT)")
	flags.StringVar(&s.privacy, "privacy", "", "file of rules by which values are masked (SPILLWAY_PRIVACY)")
	flags.StringVar(&s.keys, "keys", "", "file of the keys that open sealed letters (SPILLWAY_KEYS)")
	flags.StringVar(&s.file, "config", "", "file with these values (SPILLWAY_CONFIG)")
}

// load fills the settings, each from the first place that has it.
func (s *config) load(cmd *cobra.Command, env func(string) string) error {
	all, err := s.places(cmd.Flags(), env)
	if err != nil {
		return err
	}
	for name, setting := range s.names() {
		*setting = ""
		for _, p := range all {
			if value, is := p.values[name]; is {
				*setting = value
				break
			}
		}
	}
	if err := s.target(all); err != nil {
		return err
	}
	s.given = cmd.Flags().Changed
	if s.by == "" {
		s.by = person()
	}
	return nil
}

// person is who runs the process.
func person() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// read returns the values of the file of the configuration, and whether it was asked for. Only such a file must be
// there.
func (s *config) read(env func(string) string) (values map[string]string, named bool, err error) {
	if s.file == "" {
		s.file = env("SPILLWAY_CONFIG")
	}
	if s.file != "" {
		values, err = s.parse(s.file)
		return values, true, err
	}
	candidates := []string{"redrive.conf"}
	if folder, err := os.UserConfigDir(); err == nil {
		candidates = append(candidates, filepath.Join(folder, "redrive", "redrive.conf"))
	}
	for _, path := range candidates {
		if values, err = s.parse(path); !errors.Is(err, fs.ErrNotExist) {
			return values, false, err
		}
	}
	return nil, false, nil
}

func (s *config) parse(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, wrong("--config: %w", err)
	}
	values, known := map[string]string{}, s.names()
	lines := bufio.NewScanner(bytes.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if !found || known[name] == nil {
			return nil, wrong("%s, line %d: want name = value, with a name of %s", path, number,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		if value = strings.TrimSpace(value); value != "" {
			values[name] = value
		}
	}
	return values, lines.Err()
}

// place is where settings come from.
type place struct {
	name   string
	values map[string]string
}

const environment = "the environment"

// says reports whether the place says where the letters are.
func (p place) says() bool { return p.values["url"]+p.values["db"] != "" }

// places are where settings come from, the first to ask first.
func (s *config) places(flags *pflag.FlagSet, env func(string) string) ([]place, error) {
	given, around := place{"the flags", map[string]string{}}, place{environment, map[string]string{}}
	for name, setting := range s.names() {
		if flags.Changed(name) {
			given.values[name] = *setting
		}
		if value := env(variable(name)); value != "" {
			around.values[name] = value
		}
	}
	values, named, err := s.read(env)
	if err != nil {
		return nil, err
	}
	file := place{"the file of the configuration", values}
	chosen, err := s.chosen(given, around, file, named, env)
	if err != nil {
		return nil, err
	}
	if chosen == nil {
		return []place{given, around, file}, nil
	}
	return []place{given, *chosen, around, file}, nil
}

// chosen is the context to work in, if there is one: that of --context, that of the environment, or the one in use if
// nothing else says where the letters are.
func (s *config) chosen(given, around, file place, named bool, env func(string) string) (*place, error) {
	name := s.context
	switch {
	case name != "" && given.says():
		return nil, wrong("--context is %q, and --url or --db is given too: give one", name)
	case name != "" || given.says():
	default:
		if name = env("REDRIVE_CONTEXT"); name != "" && around.says() {
			return nil, wrong("REDRIVE_CONTEXT is %q, and REDRIVE_URL or SPILLWAY_DB is set too: unset one, or say --context, "+
				"--url or --db", name)
		}
	}
	if name == "" && (given.says() || around.says() || named && file.says()) {
		return nil, nil
	}
	all, err := contexts.Read()
	if err != nil {
		return nil, coded{err, exitWrong}
	}
	if name == "" {
		name = all.Current
	}
	if name == "" {
		return nil, nil
	}
	c, err := all.Get(name)
	if err != nil {
		return nil, coded{err, exitWrong}
	}
	p := place{"the context " + quoted(name), map[string]string{"url": c.URL, "token-file": c.TokenFile, "ca": c.CA}}
	if c.Config != "" {
		if p.values, err = s.parse(c.Config); err == nil && !p.says() {
			err = wrong("the context is %q, and %s has neither url nor db: add one", name, c.Config)
		}
	}
	return &p, err
}

// target keeps one answer to the question where the letters are: that of the first place that has one. A token goes
// only to the API that it was given for.
func (s *config) target(all []place) error {
	s.url, s.db, s.tokenFile, s.ca = "", "", "", ""
	for i, p := range all {
		if !p.says() {
			continue
		}
		s.url, s.db = p.values["url"], p.values["db"]
		if s.url != "" && s.db != "" {
			return wrong("%s have both a url and a db: give one", p.name)
		}
		from := []place{all[0], p}
		if i == 0 { // --url with a variable for the token
			from = append(from, all[slices.IndexFunc(all, func(p place) bool { return p.name == environment })])
		}
		for name, setting := range map[string]*string{"token-file": &s.tokenFile, "ca": &s.ca} {
			for _, p := range from {
				if value, is := p.values[name]; is {
					*setting = value
					break
				}
			}
		}
		return nil
	}
	return nil
}

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
