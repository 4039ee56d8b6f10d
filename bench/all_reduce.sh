#!/bin/sh
# All-reduce of f32 on 2 ranks of one machine (RANKS=n: of n), against MPI_Allreduce of the same library, for each MPI library that is here:
# `bench/all_reduce.sh [ROUNDS [CHUNK [BYTES...]]]`; CHUNK 0: by the link, as runs do. Prints times, rates, and the share of what memcpy moves.
set -eu
program=$(dirname "$0")/../build/lathe_mpi_bench
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for mpirun in "mpirun.openmpi --oversubscribe --bind-to none" mpirun.mpich; do
  command -v "${mpirun%% *}" >/dev/null 2>&1 || { echo "no ${mpirun%% *}: \`tools/setup test\` installs it"; continue; }
  # shellcheck disable=SC2086
  $mpirun -n "${RANKS:-2}" "$program" "$@"
done
