#!/bin/bash
# Continues the training of the transformer on one GPU in under ten minutes. Run it on the machine with the GPU, from
# this folder; the state (encoder.pt, stats.pt, spiece.model, dit.pt; 70 MB) is read from STATE and written to OUT.
#   STATE=state OUT=out bash gpu.sh [minutes]
# Not yet run on a GPU: rehearsed on a CPU with DEVICE=cpu BATCH=2 (same code path, tiny batches).
set -euo pipefail
minutes=${1:-8}
state=${STATE:?folder with the state} out=${OUT:?folder for the result}
device=${DEVICE:-cuda} big=${BATCH:-256} small=$(( ${BATCH:-256} / 2 ))
mkdir -p "$out"
cp "$state"/{encoder.pt,stats.pt,spiece.model} "$out"/
# A new schedule from the averaged weights: the clock of dit.pt starts again, the optimiser's memory too.
python - "$state/dit.pt" "$out/dit.pt" <<'PY'
import sys, torch
s = torch.load(sys.argv[1], map_location="cpu", weights_only=False)
s["seconds"], s["muon"], s["opt"] = 0.0, None, None
s["dit"], s["text"] = s["ema_dit"]["module"], s["ema_text"]["module"]
torch.save(s, sys.argv[2])
PY
python train_dit.py --work "$out" --device "$device" --minutes "$minutes" --layers 4:0,8:0.05 --workers 12 ${EXTRA---bf16} \
    --phases "1:$big:0.1,3:$big:0.25,9:$small:0.8,21:$(( (small + 1) / 2 )):1.0" --muon 4e-3 --lr 1e-3 --threads 4
