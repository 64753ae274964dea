#!/bin/sh
# redis-cli as the user `admin`, at the server of this container or machine: cli.sh [-h HOST] [-p PORT] [COMMAND...]
set -eu
secrets=${SECRETS:-$(cd "$(dirname "$0")" && pwd)/secrets/servers}
REDISCLI_AUTH=$(cat "$secrets/admin.password")
export REDISCLI_AUTH
exec redis-cli --tls --cacert "$secrets/ca.pem" --user admin --no-auth-warning -h "${HOST:-127.0.0.1}" -p "${PORT:-6379}" "$@"
