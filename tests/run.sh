#!/usr/bin/env bash
# Everything that must hold, from a bare Debian machine: builds with two compilers and warnings as errors, the tests plain and
# under sanitizers, a smoke run of every fuzz target, formatting, installation. Ends with "N passed, N failed".
#
#   tests/run.sh [--quick]     --quick: only the release build and its tests
#
# Five builds, each made once; logs in build/logs. SECONDS_A_FUZZER=60 tests/run.sh fuzzes longer.
set -u
cd "$(dirname "$0")/.." || exit 1
case ${1:-} in
"" | --quick) quick=${1:-} ;;
*)
    sed -n '5,7s/^# *//p' tests/run.sh # shows what it can be told instead of running for 24 minutes
    [ "$1" = --help ] && exit 0
    exit 2
    ;;
esac
fuzz_seconds=${SECONDS_A_FUZZER:-4}
logs=$PWD/build/logs
mkdir -p "$logs"
passed=0 failed=0 begun=$SECONDS

# name, command...: runs it with its output in a log; counts it, and what ctest counted in it
step() {
    local name=$1 log=$logs/$1.txt start=$SECONDS good=1 tests bad
    shift
    "$@" >"$log" 2>&1 || good=0
    tests=$(sed -n 's/.*tests passed, \([0-9]*\) tests* failed out of \([0-9]*\).*/\1 \2/p' "$log" | tail -1)
    if [ -n "$tests" ]; then
        bad=${tests% *}
        passed=$((passed + ${tests#* } - bad)) failed=$((failed + bad))
        [ "$bad" = 0 ] && [ $good = 0 ] && failed=$((failed + 1))
    elif [ $good = 1 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
    if [ $good = 1 ]; then
        echo "ok      $name (${tests:+$((${tests#* } - bad)) tests, }$((SECONDS - start)) s)"
    else
        echo "FAILED  $name ($((SECONDS - start)) s), from $log:"
        grep -nE 'error:|ERROR|FAILED|\*\*\*Failed|SUMMARY|warning:' "$log" | head -25
        tail -n 15 "$log"
    fi
    return $((1 - good))
}

build() { # preset, further cmake arguments: configures and builds
    local preset=$1 launcher=()
    shift
    command -v ccache >/dev/null && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    cmake --preset "$preset" "${launcher[@]}" "$@" && cmake --build --preset "$preset"
}

run_tests() { # build folder, further ctest arguments
    local dir=$1
    shift
    ctest --test-dir "$dir" --output-on-failure --timeout 1500 -j 2 "$@"
}

formatted() {
    git ls-files '*.c' '*.h' '*.cc' | xargs clang-format --dry-run -Werror
}

installed() { # the installed command renders, and a program finds the libraries through pkg-config
    local root=$PWD/build/installed
    rm -rf "$root"
    cmake --install build --prefix "$root" >/dev/null || return 1
    tests/make_tiny_model.py "$root/tiny" --width 64 --height 64 --num-frames 5 --steps 2 || return 1
    "$root/bin/longtake" render "a red ball" -o "$root/out.mp4" --model "$root/tiny" --seed 1 || return 1
    cat >"$root/use.c" <<'C'
#include <stdio.h>
#include "stream/stream.h"
#include "video/video.h"
int main(int argc, char **argv)
{
    lt_ctx *ctx;
    lt_model_info info;
    lt_media_info media;
    if (argc != 3 || lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) return 1;
    if (lt_model_probe(&info, ctx, &(lt_model_options){.path = argv[1]}) < 0 || lt_media_inspect(&media, ctx, argv[2]) < 0) {
        puts(lt_error(ctx));
        return 1;
    }
    printf("%s, %lld frames\n", info.family, (long long)media.frames);
    lt_media_info_free(&media);
    lt_ctx_destroy(&ctx);
    return 0;
}
C
    local pc
    pc=$(dirname "$(find "$root" -name longtake.pc)")
    cc -std=c17 "$root/use.c" -o "$root/use" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs longtake) || return 1
    "$root/use" "$root/tiny" "$root/out.mp4"
}

# The rooms that use no library but the C library, on their portable kernels: MSan takes what others write for unset memory.
# stream/ (FFmpeg) and video/ (jansson, sentencepiece) would need those libraries built with it.
memory_sanitized() {
    local launcher=() targets
    command -v ccache >/dev/null && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
    cmake -S . -B build-msan -G Ninja -DLT_STREAM=OFF -DLT_SANITIZE=memory -DCMAKE_C_COMPILER=clang \
        -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=Sanitize "-DCMAKE_C_FLAGS_SANITIZE=-O1 -g" \
        "${launcher[@]}" || return 1
    targets=$(cd tests && ls unit_attention_*.c unit_scheduler_*.c unit_vae_*.c | sed 's/\.c$//')
    cmake --build build-msan --target $targets || return 1
    LONGTAKE_ISA=portable run_tests build-msan -R "^($(echo $targets | tr ' ' '|'))\$"
}

# A few cases of every operation, for runs that are a hundred times slower.
some_cases='linear_bf16_f32_29x linear_f32_f32_13x conv_time_bf16_f32 attention_f32_1x attention_f32_relative norm_layer_f32_uniform
    qknorm_f32_bf16_uniform_rope stats_uniform lincomb_3 patch_to_bf16 rgb8 latent_image tilemean tilescore merge fft2'

# Threads: the pool serves every operation alike, so a few cases of each do; what runs from outside is left to the plain run.
raced() {
    local case
    for case in $some_cases; do
        build-tsan/tests/checkkernels --threads 3 "$case" || return 1
    done
    run_tests build-tsan -E '^(checkkernels.*|parity.*|unit_(video_snapshot|examples_switch)|e2e_(batch|blocks|drift|extend|jobs|page|places|sparse))$'
}

# Kernels on processors that this machine is not, where they choose their set by themselves: one without AVX-512, one without AVX2.
emulated() {
    local cpu isa cases
    while read -r cpu isa cases; do
        for case in ${cases:-$some_cases}; do
            echo "$cpu $case"
            qemu-x86_64 -cpu "$cpu" build/tests/checkkernels --isa auto --threads 2 "$case" 2>&1 |
                grep -v 'warning: TCG' | tee /dev/stderr | grep -q "^isa $isa .* [1-9][0-9]* cases, 0 failed" || return 1
        done
    done <<'CASES'
Haswell avx2
Nehalem portable linear_bf16_f32_29x attention_f32_1x rgb8 tilescore
CASES
}

fuzz_smoke() {
    local target=$1 name seeds
    name=$(basename "$target")
    seeds=$PWD/build-fuzz/corpus/$name
    mkdir -p "$seeds"
    (cd build-fuzz && "$target" -max_total_time="$fuzz_seconds" -timeout=20 -rss_limit_mb=3000 -verbosity=0 \
        -artifact_prefix="$logs/" "$seeds" $([ -d "../tests/corpus/$name" ] && echo "../tests/corpus/$name"))
}

step packages tests/packages.sh || exit 1
if step build-release build release; then
    step test-release run_tests build
    step install installed
    if command -v qemu-x86_64 >/dev/null; then
        step test-emulated emulated
    else
        echo "skip    test-emulated: no qemu-x86_64 here (package qemu-user)"
    fi
fi
if [ "$quick" != --quick ]; then
    step format formatted
    # From outside, sanitizers see little that the unit tests did not: what takes minutes is left to the plain run.
    step build-asan build asan && step test-asan run_tests build-asan -E '^(unit_examples_switch|e2e_(batch|drift|jobs|page|sparse))$'
    # clang with its warnings, and the fuzz targets, are one build
    if step build-fuzz-clang build fuzz; then
        for target in "$PWD"/build-fuzz/tests/fuzz_*; do
            [ -x "$target" ] && step "$(basename "$target")" fuzz_smoke "$target"
        done
    fi
    step build-tsan build tsan && step test-tsan raced
    step test-msan memory_sanitized
fi
echo "$((SECONDS - begun)) s"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
