package connect

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"

	"github.com/go-sql-driver/mysql"
)

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
