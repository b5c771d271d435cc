#!/usr/bin/env bash
# Servers of today without Docker, for root: roots made by debootstrap, in which services.sh runs all servers but Kafka, which
# needs Java. Mounts are made in a namespace of their own, which ends with the last server: nothing is left to unmount, and a
# root is removed like any folder.
#
#   newest.sh make [sid|trixie]...    make what is missing: sid has all servers, trixie has RabbitMQ 4.0; prints their folders
#   newest.sh versions [ROOT]...      print what is in them: sid moves
#   newest.sh run ROOT COMMAND...     run a program in a root, which sees the network of the machine and no other folder
#   newest.sh remove                  remove them
#   SPILLWAY_SERVICES_ROOT=ROOT services.sh up rabbitmq    as ever; also for tests, whose faults call services.sh
set -euo pipefail

here=${here:-$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)}
roots=${SPILLWAY_ROOTS:-/var/tmp/spillway-roots}
mirror=${SPILLWAY_DEBIAN:-http://deb.debian.org/debian}

packages() {
  case $1 in
    sid) echo rabbitmq-server postgresql mariadb-server redis-server nats-server pgbouncer openssl procps ;;
    trixie) echo rabbitmq-server openssl procps ;;
    *) echo "newest: there are the roots sid and trixie, no $1" >&2 && exit 2 ;;
  esac
}

# inside ROOT COMMAND...: runs it in the root, with the folders bound that both sides know by the same names.
inside() {
  local root=$1
  shift
  mkdir -p "$root$here" "$root${base:=$here}"
  # shellcheck disable=SC2016 # for the inner shell
  exec unshare --mount bash -ec '
    root=$1 here=$2 base=$3
    shift 3
    mount --rbind /proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --bind "$here" "$root$here"
    mount --bind "$base" "$root$base"
    exec chroot "$root" env -u SPILLWAY_SERVICES_ROOT PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
  ' - "$root" "$here" "$base" "$@"
}

make_root() {
  local root=$roots/$1 new=$roots/$1.new wanted
  wanted=$(packages "$1")
  if [[ ! -d $root ]]; then
    [[ $(id -u) == 0 ]] || { echo "newest: only root can make $root" >&2 && exit 1; }
    command -v debootstrap >/dev/null || apt-get install -y -qq --no-install-recommends debootstrap >&2
    rm -rf "$new"
    mkdir -p "$roots"
    debootstrap --variant=minbase "$1" "$new" "$mirror" >"$roots/$1.log" 2>&1 || { tail "$roots/$1.log" >&2 && exit 1; }
    printf '#!/bin/sh\nexit 101\n' >"$new/usr/sbin/policy-rc.d" # no server of its own
    chmod 755 "$new/usr/sbin/policy-rc.d"
    mkdir -p "$new/etc/postgresql-common"
    echo 'create_main_cluster = false' >"$new/etc/postgresql-common/createcluster.conf"
    echo '127.0.0.1 localhost' >"$new/etc/hosts"
    # shellcheck disable=SC2086 # a list of packages
    (inside "$new" env DEBIAN_FRONTEND=noninteractive sh -c \
      'apt-get -o Acquire::Check-Valid-Until=false update -qq && apt-get install -y -qq --no-install-recommends "$@" && apt-get clean' - $wanted) \
      </dev/null >>"$roots/$1.log" 2>&1 || { tail "$roots/$1.log" >&2 && exit 1; }
    # A test starts PgBouncer itself: outside, with the root's own libraries.
    mkdir -p "$new/outside"
    printf '#!/bin/sh\nexec "%s/lib64/ld-linux-x86-64.so.2" --library-path "%s/usr/lib/x86_64-linux-gnu" "%s/usr/sbin/pgbouncer" "$@"\n' \
      "$root" "$root" "$root" >"$new/outside/pgbouncer"
    chmod 755 "$new/outside/pgbouncer"
    mv "$new" "$root"
  fi
  echo "$root"
}

versions() {
  # shellcheck disable=SC2016,SC2046 # the format is dpkg's; a list of packages
  chroot "$1" dpkg-query -W -f '${Package} ${Version}\n' $(packages "$(basename "$1")") erlang-base 2>/dev/null
}

# services_inside COMMAND ARGUMENTS...: services.sh in SPILLWAY_SERVICES_ROOT, and for Kafka outside, with data folders beside
# those of the servers outside.
services_inside() {
  local root=$SPILLWAY_SERVICES_ROOT command=$1 name rest=() kafka=() usual=" kafka rabbitmq redis postgres mariadb nats "
  shift
  unset SPILLWAY_SERVICES_ROOT
  [[ -x $root/bin/bash ]] || { echo "services: $root is no root: make one with newest.sh" >&2 && exit 1; }
  export SPILLWAY_SERVICES_DIR=$base-${root##*/} SPILLWAY_KAFKA_VERSION=${SPILLWAY_KAFKA_VERSION:-4.4.0}
  base=$SPILLWAY_SERVICES_DIR
  if [[ ! -d $base ]]; then (umask 022 && mkdir -p "$base"); fi
  case $command in
    up | fresh | install)
      # shellcheck disable=SC2086 # a list of servers
      (($# > 0)) || set -- $usual
      for name in "$@"; do if [[ $name == kafka ]]; then kafka=(kafka); else rest+=("$name"); fi; done
      if ((${#kafka[@]} > 0)); then "$here/services.sh" "$command" kafka; fi
      ((${#rest[@]} > 0)) || exit 0
      set -- "${rest[@]}"
      ;;
    *) if [[ ${1-} == kafka ]]; then exec "$here/services.sh" "$command" "$@"; fi ;;
  esac
  inside "$root" "$here/services.sh" "$command" "$@"
}

if [[ ${BASH_SOURCE[0]} != "$0" ]]; then return; fi
command=${1:-help}
shift || true
case $command in
  make)
    (($# > 0)) || set -- sid trixie
    for name in "$@"; do make_root "$name"; done
    ;;
  versions)
    (($# > 0)) || set -- "$roots/sid" "$roots/trixie"
    for name in "$@"; do versions "$name"; done
    ;;
  run) inside "$@" ;;
  remove) rm -rf "${roots:?}" ;;
  *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" ;;
esac
