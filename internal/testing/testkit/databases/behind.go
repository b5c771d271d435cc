package databases

import (
	"database/sql"
	"net/url"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/watermill-spillway/spillway/internal/testing/faultproxy"
)

// Behind opens a pool at an address of a server, whose connections go through a proxy.
func (d Database) Behind(t testing.TB, address string) (*sql.DB, *faultproxy.Proxy) {
	t.Helper()
	var server string
	var through func(proxy string) string
	if d.Name == MariaDB.Name {
		config, err := mysql.ParseDSN(address)
		if err != nil {
			t.Fatal(err)
		}
		server, through = config.Addr, func(proxy string) string { config.Addr = proxy; return config.FormatDSN() }
	} else {
		at, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		server, through = at.Host, func(proxy string) string { at.Host = proxy; return at.String() }
	}
	proxy, err := faultproxy.New(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return d.Open(t, through(proxy.Addr())), proxy
}
