# shellcheck shell=bash disable=SC2034,SC2154 # used by services.sh, which reads this file
# PostgreSQL. The user spillway is its superuser, as in the image that compose.yaml names.
postgres_port=${SPILLWAY_POSTGRES_PORT:-19432}
postgres_address="postgres://spillway:spillway@127.0.0.1:$postgres_port/spillway?sslmode=disable"
postgres_variable=SPILLWAY_POSTGRES
postgres_user=postgres
postgres_signal=INT # "fast": do not wait for clients to leave

# Debian keeps the programs out of the path, by version.
postgres_bin() {
  local folder
  folder=$(printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)
  if [[ ! -x $folder ]]; then folder=$(command -v initdb) || return 0; fi
  dirname "$folder"
}

postgres_packages() {
  if [[ -z $(postgres_bin) ]]; then echo -n "postgresql "; fi
  if ! command -v openssl >/dev/null; then echo openssl; fi
}

postgres_fetch() { :; }

postgres_prepare() {
  local bin
  bin=$(postgres_bin)
  echo spillway >"$1/password"
  chmod 644 "$1/password"
  as_user postgres "$bin/initdb" -D "$1/new" -U spillway --pwfile="$1/password" -A scram-sha-256 --no-locale -E UTF8 &&
    echo 'CREATE DATABASE spillway' | as_user postgres "$bin/postgres" --single -D "$1/new" postgres
}

postgres_run() {
  # It is not running, that has been seen to; but a killed one that was not reaped yet (PID 1 of a container may never
  # do it) still looks alive to PostgreSQL, which would then refuse to start.
  rm -f "$1/data/postmaster.pid"
  certified postgres "$1"
  launch postgres "$(postgres_bin)/postgres" -D "$1/data" -p "$postgres_port" -c listen_addresses=127.0.0.1 \
    -c unix_socket_directories= -c shared_buffers=64MB -c max_connections=200 -c fsync="$fsync" \
    -c ssl=on -c ssl_ca_file="$1/tls/ca.pem" -c ssl_cert_file="$1/tls/server.pem" -c ssl_key_file="$1/tls/server.key"
}

postgres_probe() {
  PGPASSWORD=spillway PGCONNECT_TIMEOUT=3 "$(postgres_bin)/psql" -XAtqw -h 127.0.0.1 -p "$postgres_port" -U spillway \
    -d spillway -c 'SELECT 1'
}
