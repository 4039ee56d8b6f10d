#!/bin/sh
# Lathe's matrix multiply against OpenBLAS and oneDNN, from nothing: fetches the peers, builds, measures.
# Arguments go to `lathe bench op matmul`, for example: bench/matmul.sh --shapes gpt-mini --rounds 15
set -eu
cd "$(dirname "$0")/.."
tools/setup
tools/build
peers=$(bench/peers) || echo "bench/matmul.sh: going on without what is missing" >&2
eval "$peers"
exec build/lathe bench op matmul "$@"
