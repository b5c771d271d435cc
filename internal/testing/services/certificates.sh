# shellcheck shell=bash disable=SC2154 # used by services.sh, which reads this file
# Certificates for the listeners with TLS, of an authority of their own. Each server has its own copy, that only its user can read.

# certified SERVER FOLDER: makes FOLDER/tls with ca.pem, server.pem and server.key, and for clients client.pem and client.key.
certified() {
  local made=$2/tls.new extensions=$2/tls.new/extensions name
  if [[ -d $2/tls ]]; then return; fi
  rm -rf "$made"
  as_user "$1" mkdir "$made"
  (
    umask 077
    key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
    as_user "$1" openssl req -x509 "${key[@]}" -days 3650 -subj "/CN=spillway tests" -keyout "$made/ca.key" -out "$made/ca.pem"
    printf '%s\n' 'subjectAltName=IP:127.0.0.1,DNS:localhost' 'extendedKeyUsage=serverAuth,clientAuth' |
      as_user "$1" tee "$extensions" >/dev/null
    for name in server client; do # RabbitMQ reads the user from the client's name
      as_user "$1" openssl req "${key[@]}" -subj /CN=spillway -keyout "$made/$name.key" -out "$made/$name.csr"
      as_user "$1" openssl x509 -req -in "$made/$name.csr" -days 3650 -CA "$made/ca.pem" -CAkey "$made/ca.key" -CAcreateserial \
        -extfile "$extensions" -out "$made/$name.pem"
    done
    as_user "$1" cp "$made/server.key" "$made/both.pem"
    as_user "$1" sh -c 'cat "$1/server.pem" >>"$1/both.pem"' - "$made"
  ) >>"$base/$1.log" 2>&1 || return
  # Tests connect as another user, with the client's key.
  chmod 755 "$made"
  chmod 644 "$made"/ca.pem "$made"/client.key "$made"/client.pem
  mv "$made" "$2/tls"
}
