# shellcheck shell=bash disable=SC2034,SC2154 # used by services.sh, which reads this file
# RabbitMQ, with an epmd of its own. The node is spillway@localhost, so that no name needs to be resolved.
rabbitmq_port=${SPILLWAY_AMQP_PORT:-19672}
rabbitmq_address=amqp://spillway:spillway@127.0.0.1:$rabbitmq_port/
rabbitmq_variable=SPILLWAY_AMQP
rabbitmq_user=rabbitmq
rabbitmq_signal=TERM

# Debian's rabbitmq-server in the path insists on root or its own user; the script behind it does not.
rabbitmq_program() {
  local program
  for program in /usr/lib/rabbitmq/bin/rabbitmq-server "$(command -v rabbitmq-server)"; do
    if [[ -x $program ]]; then
      echo "$program"
      return
    fi
  done
}

rabbitmq_packages() {
  if [[ -z $(rabbitmq_program) ]]; then echo -n "rabbitmq-server "; fi
  if ! command -v openssl >/dev/null; then echo openssl; fi
}

rabbitmq_fetch() { :; }

rabbitmq_prepare() {
  as_user rabbitmq mkdir "$1/new" # the server fills it
}

rabbitmq_run() {
  certified rabbitmq "$1"
  cat >"$1/rabbitmq.conf" <<TEXT
listeners.tcp.1 = 127.0.0.1:$rabbitmq_port
listeners.ssl.1 = 127.0.0.1:$((rabbitmq_port + 3))
ssl_options.cacertfile = $1/tls/ca.pem
ssl_options.certfile = $1/tls/server.pem
ssl_options.keyfile = $1/tls/server.key
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = false
ssl_cert_login_from = common_name
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
default_user = spillway
default_pass = spillway
loopback_users = none
vm_memory_high_watermark.absolute = 4GB
disk_free_limit.absolute = 50MB
raft.wal_max_size_bytes = 67108864
TEXT
  echo '[rabbitmq_auth_mechanism_ssl].' >"$1/enabled_plugins"
  : >"$1/env.conf"
  launch rabbitmq env HOME="$1/data" RABBITMQ_NODENAME=spillway@localhost RABBITMQ_CONFIG_FILE="$1/rabbitmq.conf" \
    RABBITMQ_CONF_ENV_FILE="$1/env.conf" RABBITMQ_ENABLED_PLUGINS_FILE="$1/enabled_plugins" \
    RABBITMQ_MNESIA_BASE="$1/data" RABBITMQ_LOG_BASE="$1/data" RABBITMQ_LOGS=- RABBITMQ_PID_FILE="$1/data/server.pid" \
    RABBITMQ_DIST_PORT=$((rabbitmq_port + 1)) ERL_EPMD_PORT=$((rabbitmq_port + 2)) ERL_EPMD_ADDRESS=127.0.0.1 \
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}' \
    "$(rabbitmq_program)"
}

rabbitmq_ctl() {
  HOME=$base/rabbitmq/data RABBITMQ_NODENAME=spillway@localhost ERL_EPMD_PORT=$((rabbitmq_port + 2)) \
    "$(dirname "$(rabbitmq_program)")/rabbitmqctl" "$@"
}

# frame prints one frame of AMQP in hexadecimal: type, channel, size, payload, end.
frame() {
  local header
  header=$(head -c 7 <&3 | od -An -v -tx1 | tr -d ' \n')
  [[ ${#header} == 14 ]]
  echo "$header$(head -c $((16#${header:6} + 1)) <&3 | od -An -v -tx1 | tr -d ' \n')"
}

# A whole login: start, tune, open, close. rabbitmqctl would take a second and a half.
rabbitmq_probe() {
  exec 3<>"/dev/tcp/127.0.0.1/$rabbitmq_port"
  printf 'AMQP\0\0\011\001' >&3
  [[ $(frame) == 01????????????000a000a* ]] # start
  printf '\001\0\0\0\0\0\052\0\012\0\013\0\0\0\0\005PLAIN\0\0\0\022\0spillway\0spillway\005en_US\316' >&3
  [[ $(frame) == 01????????????000a001e* ]] # tune: the password was right
  printf '\001\0\0\0\0\0\014\0\012\0\037\007\377\0\002\0\0\0\0\316' >&3
  printf '\001\0\0\0\0\0\010\0\012\0\050\001/\0\0\316' >&3
  [[ $(frame) == 01????????????000a0029* ]] # open-ok: the virtual host is there
  printf '\001\0\0\0\0\0\013\0\012\0\062\0\310\0\0\0\0\0\316' >&3
  frame >/dev/null
}
