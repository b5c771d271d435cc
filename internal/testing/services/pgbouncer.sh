# shellcheck shell=bash # used by services.sh, which reads this file
# PgBouncer, for tests of a pooler between a service and PostgreSQL. Each test starts one of its own, with its own settings:
# "services.sh install pgbouncer".
pgbouncer_packages() {
  if ! command -v pgbouncer >/dev/null; then echo pgbouncer; fi
}

pgbouncer_fetch() { :; }
