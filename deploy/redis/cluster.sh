#!/bin/sh
# Makes a Redis Cluster of servers that start.sh has started: run `cluster.sh create` once, on any of them. The first half
# of NODES become primaries of equal shares of Tollgate's partitions, the others their replicas, in the same order.
# `cluster.sh meet` tells a member the addresses of the others, for where they change.
set -eu
home=$(cd "$(dirname "$0")" && pwd)

at() {
  node=$1
  shift
  sh "$home/cli.sh" -h "${node%:*}" -p "${node##*:}" "$@"
}
ok() {
  answer=$("$@")
  [ "$answer" = OK ] || { echo "$*: $answer" >&2 && exit 1; }
}
until_true() {
  tries=60
  until "$@"; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || { echo "waited in vain: $*" >&2 && exit 1; }
    sleep 1
  done
}
answers() { [ "$(at "$1" PING 2>/dev/null)" = PONG ]; }
# CLUSTER MEET takes no host names.
ip() {
  case ${1%:*} in
  *[!0-9.]*) getent hosts "${1%:*}" | cut -d' ' -f1 ;;
  *) echo "${1%:*}" ;;
  esac
}
meet_all() {
  for other in $NODES; do
    [ "$other" = "$1" ] || ok at "$1" CLUSTER MEET "$(ip "$other")" "${other##*:}"
  done
}
knows_all() { at "$1" CLUSTER INFO | grep -q "cluster_known_nodes:$(echo "$NODES" | wc -w)"; }
replicates() { [ "$(at "$1" CLUSTER REPLICATE "$2")" = OK ]; }
is_served() {
  info=$(at "$1" CLUSTER INFO)
  case $info in *cluster_state:ok*cluster_slots_ok:16384*) ;; *) return 1 ;; esac
}

# The last slots of the 64 partitions, in order: an even split of the slots would give one of three primaries 24 of them.
slots="360 1050 1182 1298 1864 1996 2138 2270 2518 2824 2956 3236 3368 3500 3706 3838 4425 5179 5311 5427 5993 6125 6267 6399
6647 6953 7085 7301 7433 7565 7771 7903 8490 9304 9436 9730 9994 10126 10264 10396 10950 11082 11214 11626 11758 11832 11964
12212 12555 13433 13565 13859 14123 14255 14393 14525 15079 15211 15343 15691 15823 15897 16029 16277"
last_slot() {
  if [ "$1" = "$2" ]; then echo 16383; else echo "$slots" | tr '\n' ' ' | cut -d' ' -f$((64 * $1 / $2)); fi
}

create() {
  # shellcheck disable=SC2086
  set -- $NODES
  half=$(($# / 2)) from=0
  for node; do
    until_true answers "$node"
  done
  meet_all "$1"
  for node; do
    until_true knows_all "$node"
  done
  number=1
  primaries=
  for node; do
    if [ "$number" -le "$half" ]; then
      last=$(last_slot "$number" "$half")
      ok at "$node" CLUSTER ADDSLOTSRANGE "$from" "$last"
      echo "$node: slots $from to $last"
      from=$((last + 1))
      primaries="$primaries $node"
    else
      primary=$(echo "$primaries" | cut -d' ' -f$((number - half + 1)))
      until_true replicates "$node" "$(at "$primary" CLUSTER MYID)"
      echo "$node: replica of $primary"
    fi
    number=$((number + 1))
  done
  for node; do
    until_true is_served "$node"
  done
}

case $1 in
create) create ;;
meet)
  until_true answers "$HOST:${PORT:-6379}"
  meet_all "$HOST:${PORT:-6379}" || true
  ;;
esac
