package command

import (
	"bufio"
	"bytes"
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
)

const configHelp = `A value is taken from the first place that has it:

  1. the flag                     --url, --token-file, --ca, --db, --service, --broker, --by, --privacy, --keys
  2. the environment              REDRIVE_URL, REDRIVE_TOKEN_FILE, REDRIVE_CA, SPILLWAY_DB, SPILLWAY_SERVICE, SPILLWAY_BROKER,
                                  SPILLWAY_BY, SPILLWAY_PRIVACY, SPILLWAY_KEYS
  3. the file of --config or SPILLWAY_CONFIG, else redrive.conf in the current folder, else
     redrive/redrive.conf in the folder of the user's configurations (~/.config on Linux)

The first place that has url or db says where the letters are. A token goes only to the url of its own place; a flag replaces it.

Over url the server says who you are, masks, and opens what is sealed; the service is the server's. url is https, apart from
addresses of this machine. The file of the token is read for each request: chmod 600.

The file has a value a line, under the names of the flags:

  db      = postgres://ops@db.internal/shop     or url and token-file
  service = shop
  broker  = kafka://kafka-1:9092,kafka-2:9092
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
	url, tokenFile, ca, db, service, broker, by, privacy, keys, file string
	given                                                            func(flag string) bool
}

// names are the settings that a file may have.
func (s *config) names() map[string]*string {
	return map[string]*string{"url": &s.url, "token-file": &s.tokenFile, "ca": &s.ca, "db": &s.db,
		"service": &s.service,
		"broker":  &s.broker, "by": &s.by, "privacy": &s.privacy, "keys": &s.keys}
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
	flags.StringVar(&s.db, "db", "", "URL of the database, without an API (SPILLWAY_DB)")
	flags.StringVar(&s.service, "service", "", "owner of the letters in the database (SPILLWAY_SERVICE)")
	flags.StringVar(&s.broker, "broker", "", "URL of the broker, where one is needed (SPILLWAY_BROKER)")
	flags.StringVar(&s.by, "by", "", "who you are, for the record (SPILLWAY_BY; default: user@host); an API knows it")
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

// read returns the values of the file of the configuration. Only one that was asked for must be there.
func (s *config) read(env func(string) string) (values map[string]string, err error) {
	if s.file == "" {
		s.file = env("SPILLWAY_CONFIG")
	}
	if s.file != "" {
		return s.parse(s.file)
	}
	candidates := []string{"redrive.conf"}
	if folder, err := os.UserConfigDir(); err == nil {
		candidates = append(candidates, filepath.Join(folder, "redrive", "redrive.conf"))
	}
	for _, path := range candidates {
		if values, err = s.parse(path); !errors.Is(err, fs.ErrNotExist) {
			return values, err
		}
	}
	return nil, nil
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

// says reports whether the place says where the letters are.
func (p place) says() bool { return p.values["url"]+p.values["db"] != "" }

// places are where settings come from, the first to ask first.
func (s *config) places(flags *pflag.FlagSet, env func(string) string) ([]place, error) {
	given, around := place{"the flags", map[string]string{}}, place{"the environment", map[string]string{}}
	for name, setting := range s.names() {
		if flags.Changed(name) {
			given.values[name] = *setting
		}
		if value := env(variable(name)); value != "" {
			around.values[name] = value
		}
	}
	values, err := s.read(env)
	return []place{given, around, {"the file of the configuration", values}}, err
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
			from = append(from, all[1])
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
