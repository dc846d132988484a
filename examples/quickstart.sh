#!/usr/bin/env bash
# From a clone to a video: installs what is needed (Debian 12, as root or with sudo), builds, renders.
#   examples/quickstart.sh ["prompt"]
set -eu
cd "$(dirname "$0")/.."
prompt=${1:-a red ball bounces on green grass}
video=$PWD/out/quickstart.mp4

tests/packages.sh --build
cmake -S . -B build -G Ninja >/dev/null
cmake --build build --target longtake
mkdir -p out
build/longtake render "$prompt" -o "$video" --overwrite
echo "The video: $video"
