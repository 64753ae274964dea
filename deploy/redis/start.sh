#!/bin/sh
# Starts a Redis that is one of several, or a Sentinel. It must be able to write its folder; nothing else is kept.
#
#   MODE    replicated (followed through Sentinels), cluster, or sentinel
#   HOST    how the other servers and the gateways reach this one: an IP address, or a name that all of them resolve
#   PORT    default: 6379, of a Sentinel 26379
#   NODES   all Redis servers, HOST:PORT each; the first is the primary of a store that is new
#   DATA    the folder, default /data
#
# The settings are in redis.conf, cluster.conf and sentinel.conf beside this file, users and certificates in secrets/.
set -eu
home=$(cd "$(dirname "$0")" && pwd)
secrets=${SECRETS:-$home/secrets/servers}
[ "$MODE" = sentinel ] && default=26379 || default=6379
PORT=${PORT:-$default} DATA=${DATA:-/data}
file=$DATA/$MODE.conf
first=${NODES%% *}

address() { echo "${1%:*} ${1##*:}"; }

# Longer than a failover takes (5 s until it begins): a primary that lost what it had not flushed, or its disk, is then a
# replica of one that has everything.
wait_for_failover() {
  trap 'exit 0' TERM INT
  sleep "${RESTART_DELAY:-15}" &
  wait $!
  trap - TERM INT
}

# As whom it was running, which Sentinels change. The first time: a replica of whoever has keys, for this server may have
# lost its disk; else of the first node.
role() {
  if [ -e "$file" ]; then
    grep '^replicaof ' "$file" || true
    return
  fi
  for node in $NODES; do
    [ "$node" != "$HOST:$PORT" ] || continue
    keys=$(timeout 3 sh "$home/cli.sh" -h "${node%:*}" -p "${node##*:}" DBSIZE 2>/dev/null || true)
    case $keys in
    *[!0-9]* | '' | 0) ;;
    *) echo "replicaof $(address "$node")" && return ;;
    esac
  done
  [ "$first" = "$HOST:$PORT" ] || echo "replicaof $(address "$first")"
}

# A Sentinel's knowledge of the topology. The first time: the first node; the others tell it of a later primary.
knowledge() {
  known='^sentinel (myid|monitor|current-epoch|config-epoch|leader-epoch|known-replica|known-sentinel) '
  if [ -e "$file" ]; then
    grep -E "$known" "$file"
  else
    echo "sentinel monitor tollgate $(address "$first") 2"
  fi
}

common() {
  echo "tls-port $PORT"
  echo "tls-ca-cert-file $secrets/ca.pem"
  echo "tls-cert-file $secrets/cert.pem"
  echo "tls-key-file $secrets/key.pem"
  echo "dir $DATA"
}

redis() {
  echo "include $home/redis.conf"
  [ "$MODE" != cluster ] || echo "include $home/cluster.conf"
  echo "include $secrets/redis.conf"
  echo "aclfile $secrets/users.acl"
  common
}

settings() {
  case $MODE in
  replicated)
    redis
    echo "replica-announce-ip $HOST"
    echo "replica-announce-port $PORT"
    role
    ;;
  cluster)
    redis
    case $HOST in
    *[!0-9.]*)
      echo "cluster-announce-hostname $HOST"
      echo "cluster-preferred-endpoint-type hostname"
      ;;
    *) echo "cluster-announce-ip $HOST" ;;
    esac
    ;;
  sentinel)
    knowledge
    echo "include $home/sentinel.conf"
    echo "include $secrets/sentinel.conf"
    echo "aclfile $secrets/sentinel-users.acl"
    echo "sentinel announce-ip $HOST"
    echo "sentinel announce-port $PORT"
    common
    ;;
  esac
}

[ "$MODE" = sentinel ] || [ ! -e "$file" ] || wait_for_failover
settings >"$file.next"
mv "$file.next" "$file"
if [ "$MODE" = sentinel ]; then exec redis-server "$file" --sentinel; else exec redis-server "$file"; fi
