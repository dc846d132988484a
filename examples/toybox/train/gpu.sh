#!/bin/bash
# Continues the training of the transformer on one GPU in under ten minutes. Run it on the machine with the GPU, from
# this folder. It goes on from the model folder, or from the state of another run (encoder.pt, stats.pt, spiece.model, dit.pt) in
# STATE, and writes the new state to OUT; what is in OUT already goes on.
#   OUT=out bash gpu.sh [minutes]
# Not yet run on a GPU: rehearsed on a CPU with DEVICE=cpu BATCH=2 (same code path, tiny batches).
set -euo pipefail
minutes=${1:-8}
out=${OUT:?folder for the result}
device=${DEVICE:-cuda} big=${BATCH:-256} small=$(( ${BATCH:-256} / 2 ))
mkdir -p "$out"
if [ -f "$out/dit.pt" ]; then
    echo "going on with $out/dit.pt"
elif [ -n "${STATE:-}" ]; then
    cp "$STATE"/{encoder.pt,stats.pt,spiece.model,dit.pt} "$out"/
else
    python unpack.py .. --work "$out"
fi
python train_dit.py --work "$out" --run gpu --device "$device" --minutes "$minutes" --layers 6:0,8:0.05 --workers 12 ${EXTRA---bf16} \
    --phases "10:$small:0.8,22:$(( (small + 1) / 2 )):1.0" --causal 0.9 --single 0.3 --starts 0.3 --rare 0.5 --flawed 0.5 --batch "$big" --muon 4e-3 --lr 1e-3 --threads "${THREADS:-4}"
