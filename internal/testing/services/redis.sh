# shellcheck shell=bash disable=SC2034,SC2154 # used by services.sh, which reads this file
# Redis. A write is on disk before it is confirmed: with "everysec" a write that waits behind a running fsync is confirmed
# without being in the file, and a kill loses it. Tests that count by id would fail for that, rightly.
redis_port=${SPILLWAY_REDIS_PORT:-19379}
redis_address=127.0.0.1:$redis_port
redis_variable=SPILLWAY_REDIS
redis_user="" # runs as our user
redis_signal=TERM

redis_packages() {
  if ! command -v redis-server >/dev/null; then echo redis-server; fi
}

redis_fetch() { :; }

redis_prepare() { mkdir "$1/new"; }

redis_run() {
  # A title of its process would overwrite its environment, and with that our mark.
  launch redis redis-server --set-proc-title no --bind 127.0.0.1 --port "$redis_port" --dir "$1/data" --daemonize no \
    --save '' --appendonly yes --appendfsync always --maxmemory-policy noeviction
}

# While it loads its data it answers, with an error.
redis_probe() {
  local answer
  exec 3<>"/dev/tcp/127.0.0.1/$redis_port"
  printf 'PING\r\n' >&3
  IFS= read -r -t 3 answer <&3
  [[ $answer == +PONG* ]]
}
