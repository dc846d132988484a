#!/usr/bin/env bash
# Installs what the build and the tests need on Debian 12, if anything is missing. With --build: what the build needs only.
set -u
build="gcc g++ cmake ninja-build pkg-config libavcodec-dev libavformat-dev libavfilter-dev libswscale-dev libavutil-dev
libjansson-dev libwebsockets-dev libsentencepiece-dev libutf8proc-dev libkissfft-dev libcmocka-dev python3"
tests="git clang clang-format libclang-rt-14-dev ccache ffmpeg libdnnl-dev qemu-user python3-websockets python3-numpy
chromium chromium-driver"
want=$build
[ "${1:-}" = --build ] || want="$build $tests"
missing=
for package in $want; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0
echo "installing:$missing"
sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "as root: apt-get install$missing" >&2; exit 1; }
    sudo=sudo
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q && $sudo apt-get install -q -y --no-install-recommends $missing
