package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of PostgreSQL
	_ "modernc.org/sqlite"             // and that of SQLite
)

// forms says which URLs there are.
const forms = "use postgres://user:password@host:5432/name, mysql://user:password@host:3306/name or " +
	"sqlite:///path/to/file.db"

// ErrAddress is the error of an address that is no URL of a database, or of a file that is not there.
var ErrAddress = errors.New("--db")

// patience bounds the first connection.
const patience = 10 * time.Second

// Database opens a database by its URL and connects to it. An error never has the password.
func Database(ctx context.Context, address string) (*sql.DB, error) {
	driver, dsn, err := dsnOf(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, fmt.Errorf("--db: %w", withoutPassword(err, address))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to %s: %w", Shown(address), withoutPassword(err, address)),
			db.Close())
	}
	return db, nil
}

func dsnOf(address string) (driver, dsn string, err error) {
	if address == "" {
		return "", "", errors.New("it is empty: give the URL of the database with the dead letters, or set SPILLWAY_DB; " +
			forms)
	}
	scheme, rest, found := strings.Cut(address, ":")
	if !found {
		return "", "", errors.New("it is no URL: " + forms)
	}
	switch scheme {
	case "postgres", "postgresql":
		return "pgx", postgresOf(address), nil
	case "mysql", "mariadb":
		dsn, err := mysqlOf(address)
		return "mysql", dsn, err
	case "sqlite", "file":
		dsn, err := sqliteOf(rest)
		return "sqlite", dsn, err
	}
	return "", "", fmt.Errorf("it has the scheme %q: %s", scheme, forms)
}

// postgresOf lets the driver prepare no statement, unless the address says otherwise: a pooler can be in between.
func postgresOf(address string) string {
	const mode = "default_query_exec_mode"
	if strings.Contains(address, mode+"=") {
		return address
	}
	separator := "?"
	if strings.Contains(address, "?") {
		separator = "&"
	}
	return address + separator + mode + "=exec"
}

func mysqlOf(address string) (string, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return "", errors.New("it is no URL: escape special characters of the password, such as @ as %40 and / as %2F; " +
			forms)
	}
	if parsed.Host == "" || strings.Trim(parsed.Path, "/") == "" {
		return "", errors.New("it has no host or no database name: " + forms)
	}
	host := parsed.Host
	if parsed.Port() == "" {
		host += ":3306"
	}
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.DBName = parsed.User.Username(), "tcp", host,
		strings.Trim(parsed.Path, "/")
	config.Passwd, _ = parsed.User.Password()
	query, err := mysqlQuery(parsed)
	if err != nil {
		return "", err
	}
	dsn := config.FormatDSN()
	if query != "" {
		separator := "?"
		if strings.Contains(dsn[strings.LastIndex(dsn, "/"):], "?") {
			separator = "&"
		}
		dsn += separator + query
	}
	if _, err := mysql.ParseDSN(dsn); err != nil {
		return "", withoutPassword(err, address)
	}
	return dsn, nil
}

// sqliteOf makes no file: a typo would be an empty database.
func sqliteOf(path string) (string, error) {
	path, query, _ := strings.Cut(path, "?")
	path = strings.TrimPrefix(path, "//")
	if unescaped, err := url.PathUnescape(path); err == nil {
		path = unescaped
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("the SQLite file %q cannot be opened: %w", path, errors.Unwrap(err))
	}
	if info.IsDir() {
		return "", fmt.Errorf("%q is a folder: name the SQLite file", path)
	}
	if query != "" {
		query = "&" + query
	}
	escaped := (&url.URL{Path: path}).EscapedPath()
	return "file:" + escaped + "?_pragma=busy_timeout(10000)&mode=rw" + query, nil
}

// Shown is an address without its password, for people.
func Shown(address string) string {
	if parsed, err := url.Parse(address); err == nil {
		return parsed.Redacted()
	}
	scheme, rest, _ := strings.Cut(address, "://")
	if at := strings.LastIndex(rest, "@"); at >= 0 { // several hosts are no URL
		rest = "…" + rest[at:]
	}
	return scheme + "://" + rest
}

// withoutPassword is err with the password of the address left out, whatever a driver writes into its errors.
func withoutPassword(err error, address string) error {
	text := err.Error()
	for _, secret := range secretsOf(address) {
		text = strings.ReplaceAll(text, secret, "xxxxx")
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// secretsOf are the passwords in an address, as they stand there and unescaped.
func secretsOf(address string) (secrets []string) {
	_, rest, _ := strings.Cut(address, "://")
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		return nil
	}
	_, password, _ := strings.Cut(rest[:at], ":")
	if password == "" {
		return nil
	}
	if plain, err := url.PathUnescape(password); err == nil && plain != password {
		secrets = append(secrets, plain)
	}
	return append(secrets, password)
}

// tlsOf reads tls, ca, cert and key, and takes them out of values. It returns nil without TLS.
func tlsOf(values url.Values) (*tls.Config, error) {
	given := make(map[string]string)
	for _, key := range []string{"tls", "ca", "cert", "key"} {
		switch all := values[key]; {
		case len(all) > 1:
			return nil, fmt.Errorf("the URL has %s=%q: give it once", key, all)
		case len(all) == 1:
			given[key] = all[0]
		}
		delete(values, key)
	}
	on := len(given) > 0
	if text, found := given["tls"]; found {
		var err error
		if on, err = strconv.ParseBool(text); err != nil {
			return nil, fmt.Errorf("the URL has tls=%s: give true or false", text)
		}
		if !on && len(given) > 1 {
			return nil, errors.New("the URL has tls=false, and files for TLS: leave the one or the other out")
		}
	}
	if !on {
		return nil, nil
	}
	if (given["cert"] == "") != (given["key"] == "") {
		return nil, errors.New("the URL has one of cert and key: a certificate of the client needs both files")
	}
	config := &tls.Config{}
	if path := given["ca"]; path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: %s has no certificate: give a file in PEM", path)
		}
	}
	if path := given["cert"]; path != "" {
		own, err := tls.LoadX509KeyPair(path, given["key"])
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// mysqlQuery lets the driver know files for TLS by the name redrive, and leaves its own parameters as they are.
func mysqlQuery(address *url.URL) (string, error) {
	values, err := url.ParseQuery(address.RawQuery)
	if err != nil || !(values.Has("ca") || values.Has("cert") || values.Has("key")) {
		return address.RawQuery, nil // the driver says what is wrong
	}
	config, err := tlsOf(values)
	if err != nil {
		return "", err
	}
	if err := mysql.RegisterTLSConfig("redrive", config); err != nil {
		return "", err
	}
	values.Set("tls", "redrive")
	return values.Encode(), nil
}
