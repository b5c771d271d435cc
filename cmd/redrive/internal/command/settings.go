package command

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const configHelp = `A value is taken from the first place that has it:

  1. the flag                     --db, --service, --broker, --by, --redact, --privacy, --keys
  2. the environment              SPILLWAY_DB, SPILLWAY_SERVICE, SPILLWAY_BROKER, SPILLWAY_BY, SPILLWAY_REDACT, SPILLWAY_PRIVACY,
                                  SPILLWAY_KEYS
  3. the file of --config or SPILLWAY_CONFIG, else redrive.conf in the current folder, else
     redrive/redrive.conf in the folder of the user's configurations (~/.config on Linux)

The file has a value a line, under the names of the flags:

  db      = postgres://ops@db.internal/shop
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

// config has what flags, environment and file say in common.
type config struct {
	db, service, broker, by, redact, privacy, keys, file string
}

// names are the settings that a file may have.
func (s *config) names() map[string]*string {
	return map[string]*string{"db": &s.db, "service": &s.service, "broker": &s.broker, "by": &s.by, "redact": &s.redact,
		"privacy": &s.privacy, "keys": &s.keys}
}

func (s *config) flags(flags *pflag.FlagSet) {
	flags.StringVar(&s.db, "db", "", "URL of the database (SPILLWAY_DB)")
	flags.StringVar(&s.service, "service", "", "owner of the letters (SPILLWAY_SERVICE)")
	flags.StringVar(&s.broker, "broker", "", "URL of the broker, where one is needed (SPILLWAY_BROKER)")
	flags.StringVar(&s.by, "by", "", "who you are, for the record (SPILLWAY_BY; default: user@host)")
	flags.StringVar(&s.redact, "redact", "", "program through which payloads are shown (SPILLWAY_REDACT)")
	flags.StringVar(&s.privacy, "privacy", "", "file of rules by which values are masked (SPILLWAY_PRIVACY)")
	flags.StringVar(&s.keys, "keys", "", "file of the keys that open sealed letters (SPILLWAY_KEYS)")
	flags.StringVar(&s.file, "config", "", "file with these values (SPILLWAY_CONFIG)")
}

// load fills what no flag gave.
func (s *config) load(cmd *cobra.Command, env func(string) string) error {
	from, err := s.read(env)
	if err != nil {
		return err
	}
	for name, value := range s.names() {
		if cmd.Flags().Changed(name) {
			continue
		}
		if *value = env("SPILLWAY_" + strings.ToUpper(name)); *value == "" {
			*value = from[name]
		}
	}
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

// read returns the values of the file. Only a file that was asked for must be there.
func (s *config) read(env func(string) string) (map[string]string, error) {
	if s.file == "" {
		s.file = env("SPILLWAY_CONFIG")
	}
	candidates := []string{s.file}
	if s.file == "" {
		candidates = []string{"redrive.conf"}
		if folder, err := os.UserConfigDir(); err == nil {
			candidates = append(candidates, filepath.Join(folder, "redrive", "redrive.conf"))
		}
	}
	for _, path := range candidates {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && s.file == "" {
			continue
		}
		if err != nil {
			return nil, wrong("--config: %w", err)
		}
		return s.parse(path, string(text))
	}
	return nil, nil
}

func (s *config) parse(path, text string) (map[string]string, error) {
	values, known := map[string]string{}, s.names()
	lines := bufio.NewScanner(strings.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if !found || known[name] == nil {
			return nil, wrong("%s, line %d: want name = value, with a name of db, service, broker, by, redact, privacy, keys",
				path, number)
		}
		values[name] = strings.TrimSpace(value)
	}
	return values, lines.Err()
}
