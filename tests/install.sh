#!/bin/sh
# What `cmake --install` gives, used as an outside project would: `install.sh CMAKE BUILD SOURCE WORK CXX [EXAMPLE...]`.
# Installs to one prefix, moves it, builds examples/api against it from a copy elsewhere, and runs the examples.
set -eu
cmake=$1 build=$2 source=$3 work=$4 cxx=$5
shift 5
rm -rf "$work"
mkdir -p "$work"
"$cmake" --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix"
cp -r "$source/examples/api" "$work/examples"

# Package files and headers name no path of the source tree, the build or the first prefix.
if grep -rlF -e "$source" -e "$work/first" "$work/prefix/include" "$work/prefix/lib/cmake" "$work/prefix/lib/pkgconfig"; then
  echo "installed files name paths of the build"; exit 1
fi
# A user's include path gets one name.
[ "$(ls "$work/prefix/include")" = lathe ] || { ls "$work/prefix/include"; echo "expected include/lathe alone"; exit 1; }
! grep -rn '#include "' "$work/prefix/include" || { echo "installed headers include by relative name"; exit 1; }
version=$(sed -n 's/.*kVersion = "\(.*\)".*/\1/p' "$source/src/base/version.h")
[ "$("$work/prefix/bin/lathe" --version)" = "lathe $version" ] || { echo "the program says another version"; exit 1; }
# Data sets can be got without the source tree.
(cd "$work" && "$work/prefix/bin/lathe" fetch) | grep -q '^  shakespeare ' || { echo "lathe fetch lists nothing"; exit 1; }
# Another minor version is refused.
mkdir "$work/refused"
printf 'cmake_minimum_required(VERSION 3.20)\nproject(x CXX)\nfind_package(lathe 0.99)\nif(lathe_FOUND)\nmessage(FATAL_ERROR found)\nendif()\n' >"$work/refused/CMakeLists.txt"
"$cmake" -S "$work/refused" -B "$work/refused/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$cxx" >"$work/refused.log" 2>&1
grep -q "version: $version" "$work/refused.log" ||
  { cat "$work/refused.log"; echo "the version file did not speak"; exit 1; }

"$cmake" -S "$work/examples" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror -Wno-maybe-uninitialized" >"$work/configure.log"
[ $# -gt 0 ] || set -- arrays custom_op custom_pass gradient_variance gan custom_graph simulation two_inputs
"$cmake" --build "$work/build" -j 2 --target "$@" >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
cd "$work"
for example; do
  printf '%s: ' "$example"
  "$work/build/$example" "$work/run_$example"
done
# The other way to find it: pkg-config, which says all that a compiler needs.
if command -v pkg-config >/dev/null; then
  export PKG_CONFIG_PATH="$work/prefix/lib/pkgconfig:$work/prefix/lib/$("$cxx" -print-multiarch)/pkgconfig"
  [ "$(pkg-config --modversion lathe)" = "$version" ] || { echo "lathe.pc says another version"; exit 1; }
  # shellcheck disable=SC2046
  "$cxx" -o "$work/by_pkg_config" "$work/examples/$1.cpp" $(pkg-config --cflags --libs lathe)
  printf '%s by pkg-config: ' "$1"
  "$work/by_pkg_config" "$work/run_by_pkg_config"
else
  echo "lathe.pc is not tested: no pkg-config (\`tools/setup test\` installs it)"
fi
# The run that an example left is a run like any other, but its data are gone with the program.
case " $* " in
*" arrays "*)
  ! "$work/prefix/bin/lathe" eval "$work/run_arrays" 2>"$work/eval.log" || { echo "evaluated without data"; exit 1; }
  grep -q "arrays of the program that trained" "$work/eval.log" || { cat "$work/eval.log"; exit 1; }
  "$work/prefix/bin/lathe" runs "$work/run_arrays" | grep -q finished || { echo "not listed as finished"; exit 1; }
  ;;
esac
# Its network, where the program has one of its own, is there in name alone.
case " $* " in
*" custom_op "*)
  "$work/prefix/bin/lathe" runs "$work/run_custom_op" | grep -q "squareplus_net (of a program) .*finished" ||
    { echo "not listed as finished"; exit 1; }
  for command in eval report; do
    ! "$work/prefix/bin/lathe" $command "$work/run_custom_op" 2>"$work/eval.log" || { echo "opened without its family"; exit 1; }
    grep -q 'got "squareplus_net"; if the run was made by a program with a family of its own' "$work/eval.log" || { cat "$work/eval.log"; exit 1; }
  done
  ;;
esac
