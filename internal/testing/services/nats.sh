# shellcheck shell=bash disable=SC2034,SC2154 # used by services.sh, which reads this file
# NATS with JetStream: one server that keeps its streams in files. It is a Go module: go builds it here, outside our go.mod.
nats_version=2.14.3 # as in compose.yaml
nats_port=${SPILLWAY_NATS_PORT:-19222}
nats_address=nats://127.0.0.1:$nats_port
nats_variable=SPILLWAY_NATS
nats_user=""     # runs as our user
nats_signal=TERM # stops at once; USR2 would wait for clients to leave
nats_folder=${SPILLWAY_NATS_FOLDER:-$base}/nats-server-$nats_version # several sets of servers may share it

# Ours, or where no go is to build it that of the distribution.
nats_program() {
  if [[ ! -x $nats_folder/nats-server ]] && ! command -v "${GO:-go}" >/dev/null; then
    command -v nats-server
  else
    echo "$nats_folder/nats-server"
  fi
}

nats_packages() {
  if [[ -z $(nats_program) ]]; then echo golang-go; fi
}

nats_fetch() {
  if [[ -x $(nats_program) ]]; then return; fi
  say "building nats-server $nats_version"
  rm -rf "$nats_folder.new"
  # Outside of every module, so that neither a go.mod nor its vendor folder has a say.
  if ! (cd "$base" && GOFLAGS='' GOBIN="$nats_folder.new" GO111MODULE=on \
    "${GO:-go}" install "github.com/nats-io/nats-server/v2@v$nats_version") </dev/null >"$base/nats-fetch.log" 2>&1; then
    tail -n 20 "$base/nats-fetch.log" >&2
    return 1
  fi
  mv "$nats_folder.new" "$nats_folder"
}

nats_prepare() {
  mkdir "$1/new" # the server fills it
}

nats_run() {
  # A stream takes no more than the server has: without a bound, three quarters of what the disk has free are set aside.
  cat >"$1/nats.conf" <<TEXT
listen: "127.0.0.1:$nats_port"
server_name: spillway
jetstream {
  store_dir: "$1/data"
  max_memory_store: 256MB
  max_file_store: 10GB
}
TEXT
  launch nats "$(nats_program)" -c "$1/nats.conf"
}

# It is ready when JetStream's own interface answers a request: the port is open a little earlier.
nats_probe() {
  local line
  exec 3<>"/dev/tcp/127.0.0.1/$nats_port"
  read -r line <&3
  [[ $line == INFO* ]]
  printf 'CONNECT {"verbose":false}\r\nSUB _INBOX.probe 1\r\nPUB $JS.API.INFO _INBOX.probe 0\r\n\r\n' >&3
  until [[ $line == *'"type":"io.nats.jetstream.api.v1.account_info_response"'* ]]; do
    read -r line <&3
    [[ $line != -ERR* ]]
  done
  [[ $line == *'"max_storage":'* ]]
  # One stream stays. When the last one is deleted, the server removes the folder of all streams, and the creation of another fails.
  local keeper='{"name":"spillway-keeper","subjects":["spillway.keeper"],"storage":"file","retention":"limits","num_replicas":1}'
  printf 'PUB $JS.API.STREAM.CREATE.spillway-keeper _INBOX.probe %d\r\n%s\r\n' "${#keeper}" "$keeper" >&3
  until [[ $line == *'"type":"io.nats.jetstream.api.v1.stream_create_response"'* ]]; do
    read -r line <&3
    [[ $line != -ERR* ]]
  done
  [[ $line != *'"error":'* ]]
}
