#!/usr/bin/env bash
# Real servers for tests and examples: Kafka, RabbitMQ, Redis, PostgreSQL, MariaDB, NATS and Prometheus, on ports and in a data
# folder of their own, and programs that tests start themselves: a browser, and PgBouncer. "services.sh help" lists the
# commands; what is particular to a server is in the file of its name.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
base=${SPILLWAY_SERVICES_DIR:-/var/tmp/spillway-services-$(id -u)}
servers=(kafka rabbitmq redis postgres mariadb nats prometheus)
usual=(kafka rabbitmq redis postgres mariadb nats) # without names; a test that needs Prometheus starts one of its own
programs=(browser pgbouncer)                       # they are only installed: a test that needs one starts it
deadline=${SPILLWAY_SERVICES_DEADLINE:-90} # seconds that a server has until it answers
fsync=${SPILLWAY_SERVICES_FSYNC:-on} # off, under make test: databases do not wait for the disk, and all servers go first
not_ours=3                                 # exit status: this server is not ours to start or stop

# In a root with servers of today all of this happens inside.
if [[ -n ${SPILLWAY_SERVICES_ROOT:-} ]]; then
  # shellcheck source=newest.sh
  . "$here/newest.sh"
  services_inside "${@:-help}"
fi

# Server programs are where ordinary users' paths do not lead.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

usage() {
  cat <<'TEXT'
services.sh up [server...]       install what is missing and start what does not answer
services.sh fresh [server...]    the same with empty data: stop what up started, remove its data, and start
services.sh install name...      only install what is missing, of servers, of browser (Chromium and axe-core), or of pgbouncer
services.sh down [server...]     stop what up started
services.sh status [server...]   say who answers; fails unless all do
services.sh env                  print the addresses as export lines
services.sh stop|start|restart|kill server   for fault tests; kill is a crash (SIGKILL)
services.sh certificates server    print the folder with ca.pem, client.pem and client.key for its listeners with TLS
services.sh rabbitmqctl rabbitmq arguments...   for fault tests: policies, alarms

Servers: kafka rabbitmq redis postgres mariadb nats prometheus; none named is all of them but prometheus, which down stops too.
Prometheus runs with the configuration file that SPILLWAY_PROMETHEUS_CONFIG names.
A server whose address is given (SPILLWAY_KAFKA, SPILLWAY_AMQP, SPILLWAY_REDIS, SPILLWAY_POSTGRES, SPILLWAY_MYSQL,
SPILLWAY_NATS, SPILLWAY_PROMETHEUS) is left alone. SPILLWAY_SERVICES_FSYNC=off lets PostgreSQL and
MariaDB not wait for the disk: what they confirm survives a kill, not the machine's end. Servers that root starts so have
a higher priority. SPILLWAY_SERVICES_DIR is the data folder; SPILLWAY_KAFKA_PORT and the like change the ports;
SPILLWAY_SERVICES_ROOT is a root that newest.sh made, whose servers run instead.
TEXT
}

say() { echo "services: $*" >&2; }
die() {
  say "$@"
  exit 1
}

# Every file adds, for its server: SERVER_port, SERVER_address, SERVER_variable, SERVER_user (whom it runs as when we are
# root), SERVER_signal (a graceful stop), and the functions SERVER_packages (what is missing), SERVER_fetch (what apt
# does not have), SERVER_prepare DIR (a data folder), SERVER_run DIR (calls launch) and SERVER_probe.
for server in "${servers[@]}" "${programs[@]}"; do
  # shellcheck source=/dev/null
  . "$here/$server.sh"
done
. "$here/certificates.sh"

# of SERVER NAME: the value of SERVER_NAME.
of() {
  local name=$1_$2
  echo "${!name}"
}

# given SERVER: another party runs it, and the environment says where. Our own address, exported with "env", is still ours.
given() {
  local variable
  variable=$(of "$1" variable)
  [[ -n ${!variable:-} && ${!variable} != "$(of "$1" address)" ]]
}

# answers SERVER: it speaks its protocol and lets our user in. A port that is only open is no server yet.
answers() { timeout 5 "$here/services.sh" probe "$1" >/dev/null 2>&1; }

listens() { (: <>"/dev/tcp/127.0.0.1/$(of "$1" port)") 2>/dev/null; }

# --- processes -----------------------------------------------------------------------------------------------------
# Our processes are known by a mark in their environment, which they hand down to their children. A pid file alone goes
# stale with a crash or a reboot, and then names another process.

mark() { echo "SPILLWAY_SERVICE=$base/$1"; }

# processes SERVER: the pids of all its processes. PostgreSQL's children overwrite their environment: they are known by
# their folder, also when their parent is gone, and one that was forked while we looked is found the next time.
processes() {
  {
    grep -lsxzF "$(mark "$1")" /proc/[0-9]*/environ
    find /proc/[0-9]*/cwd -maxdepth 0 -lname "*$base/$1/data" 2>/dev/null
  } | tr -dc '0-9\n' | sort -nu || true
}

# main_pid SERVER: the process that takes the signal to stop, or nothing.
main_pid() {
  local pid
  pid=$(cat "$base/$1.pid" 2>/dev/null) || return 0
  if [[ -n $pid ]] && grep -qsxzF "$(mark "$1")" "/proc/$pid/environ"; then echo "$pid"; fi
}

# becoming SERVER: sets the array become to what runs a command as the server's own user, where we are root: some refuse
# to run as root.
becoming() {
  local user
  user=$(of "$1" user)
  become=()
  if [[ $(id -u) == 0 && -n $user ]]; then
    become=(setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups)
  fi
}

# as_user SERVER COMMAND...
as_user() {
  local become
  becoming "$1"
  shift
  "${become[@]}" "$@"
}

# launch SERVER COMMAND...: in a session of its own and with none of our open files, so that it outlives the shell and
# make, holds no lock, and keeps no pipe open that CI reads to its end.
launch() {
  local server=$1 log=$base/$1.log first=()
  shift
  # Beside three lanes of tests a server is to be first: one that gets no processor for 20 s breaks what it promises.
  if [[ $fsync == off && $(id -u) == 0 ]]; then first=(nice -n -10); fi
  [[ ! -e $log ]] || mv -f "$log" "$log.1"
  : >"$log"
  (
    cd "$base/$server"
    for file in /proc/"$BASHPID"/fd/*; do
      file=${file##*/}
      if ((file > 2)); then eval "exec $file>&-"; fi
    done
    # Some allocate by the limit, and in containers it can be a billion.
    limit=$(ulimit -n)
    if [[ $limit == unlimited ]] || ((limit > 65536)); then ulimit -n 65536; fi
    becoming "$server"
    exec env "$(mark "$server")" "${first[@]}" setsid "${become[@]}" "$@"
  ) </dev/null >>"$log" 2>&1 &
  echo $! >"$base/$server.pid"
}

# await SERVER: until it answers, dies, or has had its time.
await() {
  local end=$((SECONDS + deadline))
  until answers "$1"; do
    # Between fork and exec it has no mark yet, on a busy machine for seconds.
    if ! kill -0 "$(<"$base/$1.pid")" 2>/dev/null && [[ -z $(main_pid "$1") ]]; then
      say "$1 ended before it answered"
      return 1
    fi
    if ((SECONDS >= end)); then
      say "$1 does not answer after $deadline s"
      return 1
    fi
    sleep 0.1
  done
}

# kill_all SERVER: SIGKILL to all its processes, and see them gone.
kill_all() {
  local pids end=$((SECONDS + 10))
  while pids=$(processes "$1") && [[ -n $pids ]]; do
    # shellcheck disable=SC2086 # a list of pids
    kill -KILL $pids 2>/dev/null || true
    if ((SECONDS >= end)); then die "$1: processes survive SIGKILL: ${pids//$'\n'/ }"; fi
    sleep 0.05
  done
  rm -f "$base/$1.pid"
}

# halt SERVER: a graceful stop; what is left after that is killed.
halt() {
  local pid end=$((SECONDS + 30))
  pid=$(main_pid "$1")
  if [[ -n $pid ]]; then
    kill -"$(of "$1" signal)" "$pid" 2>/dev/null || true
    while [[ -n $(main_pid "$1") ]]; do
      if ((SECONDS >= end)); then
        say "$1 does not stop within 30 s: killed"
        break
      fi
      sleep 0.05
    done
  fi
  kill_all "$1"
}

# --- start and stop ------------------------------------------------------------------------------------------------

# try_start SERVER: one attempt, with the end of the log if it fails.
try_start() {
  local folder=$base/$1
  if [[ ! -d $folder/data ]]; then
    # Prepared aside and renamed: a folder that is there is whole, whenever we were killed.
    rm -rf "${folder:?}"
    mkdir -p "$folder"
    local user
    user=$(of "$1" user)
    if [[ $(id -u) == 0 && -n $user ]]; then chown "$user:" "$folder"; fi
    if ! as_user "$1" test -x "$folder"; then
      say "$1: the user $user cannot reach $folder: set SPILLWAY_SERVICES_DIR to a place that all can enter"
      return 1
    fi
    if ! "$1_prepare" "$folder" </dev/null >"$base/$1.log" 2>&1; then
      say "$1: its data folder cannot be made; $base/$1.log ends:"
      tail -n 20 "$base/$1.log" >&2
      return 1
    fi
    mv "$folder/new" "$folder/data"
  fi
  "$1_run" "$folder"
  if ! await "$1"; then
    say "$base/$1.log ends:"
    tail -n 30 "$base/$1.log" >&2
    kill_all "$1"
    return 1
  fi
}

# start SERVER [renew]: with renew, a data folder with which it does not start is moved aside and made anew. A fault
# test must not ask for that: a server that comes back empty would pass for one that lost messages.
start() {
  local begun=$SECONDS
  if answers "$1"; then
    say "$1 answers at $(of "$1" address)"
    return
  fi
  if [[ -n $(main_pid "$1") ]]; then # it is starting, or it hangs
    if await "$1"; then return; fi
  fi
  kill_all "$1"
  if listens "$1"; then die "$1: port $(of "$1" port) is taken by something that is not it"; fi
  if ! try_start "$1"; then
    if [[ ${2:-} != renew ]]; then return 1; fi
    say "$1: starting anew; the old data folder is now $base/$1.unusable"
    rm -rf "$base/$1.unusable"
    if [[ -e $base/$1 ]]; then mv "$base/$1" "$base/$1.unusable"; fi
    try_start "$1" || return 1
  fi
  say "$1 started in $((SECONDS - begun)) s, answers at $(of "$1" address)"
}

# as_root COMMAND...: only to install packages. Asks for a password only at a terminal.
as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  elif [[ ${CI:-} != true ]] && (: </dev/tty) 2>/dev/null; then
    sudo "$@"
  else
    sudo -n "$@"
  fi
}

# install PACKAGE...: from Debian, without letting the packages start servers of their own on the usual ports, now or with the
# machine.
install() {
  local package
  local policy=/usr/sbin/policy-rc.d written="" status=0
  command -v apt-get >/dev/null ||
    die "missing: $*. Install them, or see compose.yaml, or set the address of a server that you have"
  say "installing $*"
  if [[ ! -e $policy ]] || grep -qs 'written by spillway' "$policy"; then
    written=$policy
    printf '#!/bin/sh\n# written by spillway while it installs test servers\nexit 101\n' |
      as_root sh -c "cat >$policy && chmod 755 $policy" || return 1
  fi
  {
    as_root apt-get update -qq || echo "apt-get update failed, trying what is known"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" || status=$?
  } </dev/null >"$base/apt.log" 2>&1
  if ((status != 0)); then
    say "$base/apt.log ends:"
    tail -n 20 "$base/apt.log" >&2
  fi
  if [[ -n $written ]]; then as_root rm -f "$written" || true; fi
  for package in "$@"; do
    if [[ -e /etc/init.d/$package ]]; then as_root update-rc.d "$package" disable </dev/null >>"$base/apt.log" 2>&1 || true; fi
  done
  return $status
}

# folder: our data folder, reachable for the servers' users. Its place is known to all, so it must not be another's.
folder() {
  if [[ ! -d $base ]]; then (umask 022 && mkdir -p "$base"); fi
  [[ -O $base && ! -L $base ]] || die "$base is not ours: set SPILLWAY_SERVICES_DIR"
}

# lock: one of us at a time; the others wait. Released with our end, however that comes.
lock() {
  folder
  exec 9>"$base/lock"
  if ! flock -w 600 9; then die "another process has held $base/lock for 10 minutes: end it"; fi
}

up() {
  local server absent=() wanted=() pids=() failed=() missing i
  for server in "$@"; do
    if given "$server"; then
      say "$server is given by $(of "$server" variable)"
    elif answers "$server"; then
      say "$server answers at $(of "$server" address)"
    else
      wanted+=("$server")
    fi
  done
  if ((${#wanted[@]} == 0)); then return; fi

  lock
  for server in "${wanted[@]}"; do
    read -ra missing <<<"$("${server}_packages")"
    absent+=("${missing[@]}")
  done
  # One that cannot be installed must not keep the others from starting: each says below what it lacks.
  if ((${#absent[@]} > 0)); then
    if ! (install "${absent[@]}"); then say "not all could be installed: ${absent[*]}"; fi
  fi
  for server in "${wanted[@]}"; do
    (
      read -ra missing <<<"$("${server}_packages")"
      if ((${#missing[@]} > 0)); then die "$server needs ${missing[*]}"; fi
      "${server}_fetch" || die "$server could not be fetched"
      start "$server" renew
    ) &
    pids+=($!)
  done
  for i in "${!pids[@]}"; do
    if ! wait "${pids[$i]}"; then failed+=("${wanted[$i]}"); fi
  done
  if ((${#failed[@]} > 0)); then die "NOT AVAILABLE: ${failed[*]}"; fi
}

# fresh SERVER...: thousands of queues and topics that earlier runs left make a broker slow, and RabbitMQ refuse to publish.
fresh() {
  local server
  lock
  for server in "$@"; do
    if given "$server"; then continue; fi
    (
      halt "$server"
      if answers "$server"; then die "$server answers at $(of "$server" address), but it is not ours to empty"; fi
      rm -rf "${base:?}/$server"
    ) &
  done
  wait
  up "$@"
}

# install_only NAME...: for programs, also those that come with a server.
install_only() {
  local server absent=() missing
  lock
  for server in "$@"; do
    read -ra missing <<<"$("${server}_packages")"
    absent+=("${missing[@]}")
  done
  if ((${#absent[@]} > 0)); then install "${absent[@]}" || die "NOT INSTALLED: ${absent[*]}"; fi
  for server in "$@"; do
    "${server}_fetch" || die "NOT INSTALLED: what $server needs could not be fetched"
  done
}

down() {
  local server
  if [[ ! -d $base ]]; then return; fi
  lock
  for server in "$@"; do
    if [[ -n $(processes "$server") ]]; then
      (halt "$server" && say "$server stopped") &
    elif ! given "$server" && answers "$server"; then
      say "$server answers at $(of "$server" address), but it is not ours to stop"
    fi
  done
  wait
}

status() {
  local server result=0 state
  for server in "$@"; do
    if given "$server"; then
      local variable
      variable=$(of "$server" variable)
      state="given by $variable: ${!variable}"
    elif answers "$server"; then
      state="answers at $(of "$server" address)"
    else
      state="does not answer at $(of "$server" address)"
      result=1
    fi
    printf '%-10s %s\n' "$server" "$state"
  done
  return $result
}

print_env() {
  local server variable
  for server in "${servers[@]}"; do
    variable=$(of "$server" variable)
    printf "export %s='%s'\n" "$variable" "${!variable:-$(of "$server" address)}"
  done
}

# fault COMMAND SERVER: what tests do to a server.
fault() {
  if given "$2"; then
    say "$2 is given by $(of "$2" variable): not ours to $1"
    exit $not_ours
  fi
  lock
  if [[ $1 != start && -z $(processes "$2") ]] && answers "$2"; then
    say "$2 was not started by us: not ours to $1"
    exit $not_ours
  fi
  case $1 in
    rabbitmqctl) rabbitmq_ctl "${@:3}" ;;
    certificates) [[ -d $base/$2/tls ]] && echo "$base/$2/tls" ;;
    stop) halt "$2" ;;
    kill) kill_all "$2" ;;
    start) start "$2" ;;
    restart)
      halt "$2"
      start "$2"
      ;;
  esac
}

command=${1:-help}
shift || true
named=("$@")
if [[ $command == rabbitmqctl ]]; then named=("${@:1:1}"); fi
for name in "${named[@]}"; do
  [[ $command == install && " ${programs[*]} " == *" $name "* ]] || [[ " ${servers[*]} " == *" $name "* ]] || die "no server \"$name\": there are ${servers[*]}"
done
case $command in
  up | fresh | status)
    if (($# == 0)); then set -- "${usual[@]}"; fi
    "$command" "$@"
    ;;
  down)
    if (($# == 0)); then set -- "${servers[@]}"; fi
    down "$@"
    ;;
  install)
    (($# > 0)) || die "install needs the name of a server"
    install_only "$@"
    ;;
  stop | start | restart | kill | certificates)
    (($# == 1)) || die "$command needs one server"
    fault "$command" "$1"
    ;;
  rabbitmqctl)
    [[ ${1-} == rabbitmq ]] || die "rabbitmqctl needs the server rabbitmq, and its own arguments behind that"
    fault "$command" "$@"
    ;;
  env) print_env ;;
  probe) "$1_probe" ;;
  help) usage ;;
  *)
    usage >&2
    exit 2
    ;;
esac
