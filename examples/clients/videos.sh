#!/usr/bin/env bash
# A video from a running `longtake serve`, with curl: made, watched while it is made, fetched, deleted.
#   examples/clients/videos.sh "a red ball bounces on green grass" out.mp4
# LONGTAKE_URL (default http://127.0.0.1:8080), LONGTAKE_TOKEN: where it is, and a token if it wants one.
set -eu
prompt=$1 out=$2
url=${LONGTAKE_URL:-http://127.0.0.1:8080}/v1/videos
auth=(-H "Authorization: Bearer ${LONGTAKE_TOKEN:-none}")

field() { # of the object on standard input
    python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"
}

id=$(curl -sS --fail-with-body "${auth[@]}" -F prompt="$prompt" -F mode=ar -F seconds=5 "$url" | field id)
echo "$id is being made; so far: ffplay '$url/$id/content?live=1'"
while state=$(curl -sS --fail-with-body "${auth[@]}" "$url/$id"); do
    case $(field status <<<"$state") in
    completed) break ;;
    failed) field error <<<"$state" >&2 && exit 1 ;;
    esac
    echo "$(field progress <<<"$state") %"
    sleep 1
done
curl -sS --fail "${auth[@]}" -o "$out" "$url/$id/content"
curl -sS --fail "${auth[@]}" -X DELETE "$url/$id" >/dev/null
echo "$out"
