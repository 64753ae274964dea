#!/bin/sh
# Makes what several Redis and their gateways share: an authority, a certificate, users, passwords.
#
#   make-secrets.sh FOLDER ADDRESS [NAME...]
#
#   ADDRESS   REDIS_URL without user and password, such as rediss+sentinel://10.0.0.1:26379,10.0.0.2:26379/tollgate
#   NAME      host names and IP addresses of servers that ADDRESS does not name, for the certificate
#
# FOLDER/servers is for each server, FOLDER/gateways for the gateways: ca.pem, and variables of their environment. Keep
# FOLDER/authority elsewhere: it signs the next certificate.
set -eu
templates=$(cd "$(dirname "$0")" && pwd)
folder=$1 address=$2
shift 2
umask 077
mkdir "$folder" # Fails if it exists: nothing that is in use is replaced.
mkdir "$folder/servers" "$folder/gateways" "$folder/authority"
cd "$folder/servers"

password() { openssl rand -hex 24; }
digest() { printf %s "$1" | openssl dgst -sha256 -r | cut -d' ' -f1; }
tollgate=$(password) replica=$(password) sentinel=$(password) admin=$(password)

for file in users.acl sentinel-users.acl; do
  sed -e '/^#/d' -e "s/#TOLLGATE/#$(digest "$tollgate")/" -e "s/#REPLICA/#$(digest "$replica")/" \
    -e "s/#SENTINEL/#$(digest "$sentinel")/" -e "s/#ADMIN/#$(digest "$admin")/" "$templates/$file" >"$file"
done
printf 'masteruser replica\nmasterauth %s\n' "$replica" >redis.conf
cat >sentinel.conf <<END
sentinel auth-user tollgate sentinel
sentinel auth-pass tollgate $sentinel
sentinel sentinel-user sentinel
sentinel sentinel-pass $sentinel
END
printf %s "$admin" >admin.password

scheme=${address%%://*} rest=${address#*://}
case $scheme in
*+sentinel) rest="$rest?sentinel_user=tollgate&sentinel_password=$tollgate" ;;
esac
cat >../gateways/gateway.env <<END
REDIS_URL=$scheme://tollgate:$tollgate@$rest
NODE_EXTRA_CA_CERTS=/etc/tollgate-redis/ca.pem
END

names="DNS:localhost,IP:127.0.0.1"
hosts=${address#*://}
for name in $(printf %s "${hosts%%/*}" | tr ',' '\n' | sed 's/:[0-9]*$//') "$@"; do
  case $name in
  *[!0-9.]*) names="$names,DNS:$name" ;;
  *) names="$names,IP:$name" ;;
  esac
done
key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
ca=../authority/ca
# shellcheck disable=SC2086
openssl req -x509 $key -keyout $ca.key -out $ca.pem -days 3650 -subj "/CN=Authority of Tollgate's Redis" 2>$ca.log
# shellcheck disable=SC2086
openssl req $key -keyout key.pem -out request.pem -subj /CN=redis -addext "subjectAltName=$names" 2>>$ca.log
openssl x509 -req -in request.pem -CA $ca.pem -CAkey $ca.key -CAcreateserial -copy_extensions copy -days 825 \
  -out cert.pem 2>>$ca.log
rm request.pem
cp $ca.pem .
cp $ca.pem ../gateways
chmod 644 ../gateways/ca.pem
