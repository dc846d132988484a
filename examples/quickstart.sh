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

if [ -n "${LONGTAKE_MODEL:-}" ] || [ -f examples/toybox/model_index.json ]; then
    build/longtake render "$prompt" -o "$video" --overwrite
else
    echo "There is no trained model in this tree yet: a model of the same layout with random weights is"
    echo "generated. Its video is noise; what it shows is that everything from the prompt to the file works."
    python3 tests/make_tiny_model.py build/random-model
    build/longtake render "$prompt" -o "$video" --overwrite --model build/random-model
fi
echo "The video: $video"
