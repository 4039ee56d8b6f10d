#!/bin/sh
# Ranks of MPI on this machine: `run.sh FAMILY RANKS WORK PROGRAM MODE...`. FAMILY: ompi or mpich. Without their mpirun it fails, so
# that a green run has run it; with LATHE_OFFLINE=1 it is skipped.
set -eu
family=$1 ranks=$2 work=$3 program=$4
shift 4
case $family in
  ompi) mpirun=mpirun.openmpi ;;
  mpich) mpirun=mpirun.mpich ;;
esac
if ! command -v $mpirun >/dev/null 2>&1; then
  echo "needs $mpirun; \`tools/setup test\` installs it"
  [ "${LATHE_OFFLINE:-}" = 1 ] && exit 77
  exit 1
fi
case $family in
  # mpirun binds two ranks to a core each, and refuses more ranks than cores.
  ompi)
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    set -- $mpirun --oversubscribe --bind-to none -n "$ranks" "$program" "$@"
    ;;
  mpich) set -- $mpirun -n "$ranks" "$program" "$@" ;;
esac
mkdir -p "$work"
out=$work/out
code=0
case " $* " in
*" heap "*)
  # A file for each rank.
  # shellcheck disable=SC2016
  export LATHE_TEST_PROGRAM="$program" LATHE_TEST_WORK="$work"
  rm -f "$work"/heap.*
  printf '#!/bin/sh\nexport LD_PRELOAD=$LATHE_TEST_PRELOAD LATHE_HEAP_COUNT=$LATHE_TEST_WORK/heap.$OMPI_COMM_WORLD_RANK$PMI_RANK LATHE_HEAP_STEPS=8,60\nexec "$LATHE_TEST_PROGRAM" heap 60\n' >"$work/rank.sh"
  chmod +x "$work/rank.sh"
  case $family in
    ompi) $mpirun --oversubscribe --bind-to none -n "$ranks" "$work/rank.sh" >"$out" 2>&1 || code=$? ;;
    mpich) $mpirun -n "$ranks" "$work/rank.sh" >"$out" 2>&1 || code=$? ;;
  esac
  [ $code = 0 ] || { cat "$out"; exit 1; }
  rank=0
  while [ $rank -lt "$ranks" ]; do
    grep -q '^end 0$' "$work/heap.$rank" || { echo "rank $rank counted nothing"; exit 1; }
    sed "s/^/rank $rank, allocations in 52 steps: /; /end 0/d" "$work/heap.$rank"
    ! grep '^lathe' "$work/heap.$rank" || { echo "rank $rank: the program or its plugin allocates in steps"; exit 1; }
    rank=$((rank + 1))
  done
  ;;
*" failure "*)
  "$@" >"$out" 2>&1 || code=$?
  cat "$out"
  [ $code = 76 ] || { echo "expected the code 76 of a failed peer, got $code"; exit 1; }
  grep -q '^\[rank 0\] rank 1: the disk is full' "$out" || { echo "rank 0 was not told"; exit 1; }
  ;;
*" contract "*)
  # The code of mpirun tells nothing here: see mpi_test.cpp.
  "$@" >"$out" 2>&1 || true
  [ "$(grep -c '^\[rank [0-9]*\] [0-9]* cases hold$' "$out")" = "$ranks" ] || { cat "$out"; exit 1; }
  grep '^\[rank' "$out"
  ;;
*) exec "$@" ;;
esac
