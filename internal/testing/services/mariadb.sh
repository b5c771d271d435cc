# shellcheck shell=bash disable=SC2034,SC2154 # used by services.sh, which reads this file
# MariaDB. The user spillway may do everything, so that tests can make databases.
mariadb_port=${SPILLWAY_MYSQL_PORT:-19306}
mariadb_address="spillway:spillway@tcp(127.0.0.1:$mariadb_port)/spillway"
mariadb_variable=SPILLWAY_MYSQL
mariadb_user=mysql
mariadb_signal=TERM

mariadb_packages() {
  if ! command -v mariadbd >/dev/null || ! command -v mariadb >/dev/null; then echo -n "mariadb-server "; fi
  if ! command -v openssl >/dev/null; then echo openssl; fi
}

mariadb_fetch() { :; }

mariadb_prepare() {
  as_user mariadb mariadb-install-db --no-defaults --datadir="$1/new" --auth-root-authentication-method=normal \
    --skip-test-db --skip-name-resolve
}

mariadb_run() {
  # At every start, so that a crash between making the folder and the user cannot lock us out.
  cp "$here/mariadb.sql" "$1/init.sql" # where its user can read it
  as_user mariadb mkdir -p "$1/tmp" # in /tmp, a server that starts deletes the temporary tables of the others
  certified mariadb "$1"
  local sync=()
  if [[ $fsync == off ]]; then sync=(--innodb-flush-log-at-trx-commit=2 --innodb-flush-method=nosync --sync-frm=0 --innodb-file-per-table=0); fi
  launch mariadb mariadbd --no-defaults --datadir="$1/data" --tmpdir="$1/tmp" --init-file="$1/init.sql" \
    --bind-address=127.0.0.1 --port="$mariadb_port" --socket=server.sock --pid-file=server.pid --skip-name-resolve \
    --max-connections=200 --innodb-buffer-pool-size=64M --innodb-log-file-size=32M --character-set-server=utf8mb4 \
    --ssl-ca="$1/tls/ca.pem" --ssl-cert="$1/tls/server.pem" --ssl-key="$1/tls/server.key" "${sync[@]}"
}

mariadb_probe() {
  MYSQL_PWD=spillway mariadb --no-defaults --protocol=tcp --connect-timeout=3 -h 127.0.0.1 -P "$mariadb_port" \
    -u spillway -e 'SELECT 1' spillway
}
