# shellcheck shell=bash disable=SC2034,SC2154 # used by services.sh, which reads this file
# Prometheus, with promtool. It runs with the configuration that its caller gives: SPILLWAY_PROMETHEUS_CONFIG is the path of the
# file, and paths in the file are relative to its folder. Without one it scrapes itself.
prometheus_port=${SPILLWAY_PROMETHEUS_PORT:-19090}
prometheus_address=http://127.0.0.1:$prometheus_port
prometheus_variable=SPILLWAY_PROMETHEUS
prometheus_user="" # runs as our user, who can read the caller's files
prometheus_signal=TERM

prometheus_packages() {
  if ! { command -v prometheus && command -v promtool; } >/dev/null; then echo prometheus; fi
}

prometheus_fetch() { :; }

prometheus_prepare() { mkdir "$1/new"; }

prometheus_run() {
  local config=$1/prometheus.yml
  if [[ -n ${SPILLWAY_PROMETHEUS_CONFIG:-} ]]; then
    config=$(realpath "$SPILLWAY_PROMETHEUS_CONFIG")
  else
    cat >"$config" <<TEXT
scrape_configs:
  - job_name: prometheus
    static_configs: [{targets: ["127.0.0.1:$prometheus_port"]}]
TEXT
  fi
  launch prometheus prometheus --config.file="$config" --storage.tsdb.path="$1/data" \
    --web.listen-address="127.0.0.1:$prometheus_port" --web.console.templates="$1" --web.console.libraries="$1"
}

# It is ready when it has read what it kept; until then it answers 503.
prometheus_probe() {
  local answer
  exec 3<>"/dev/tcp/127.0.0.1/$prometheus_port"
  printf 'GET /-/ready HTTP/1.0\r\n\r\n' >&3
  IFS= read -r -t 3 answer <&3
  [[ $answer == *' 200 '* ]] && grep -q Prometheus <&3
}
