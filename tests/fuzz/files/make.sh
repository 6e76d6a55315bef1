#!/bin/sh
# Makes the libraries again; their bytes depend on the compiler.
set -eu
cd "$(dirname "$0")"
make() { name=$1; shift; cc -O1 -shared -fPIC -nostartfiles -Wl,-z,noseparate-code -Wl,-z,lazy -Wl,--hash-style=gnu -Wl,--build-id -fdebug-prefix-map="$PWD"=. -o "$name" library.c "$@"; }
make dwarf5.so -gdwarf-5
make packed.so -gdwarf-4 -gz=zlib
make frames.so -g -fno-asynchronous-unwind-tables -fomit-frame-pointer
make linked.so -g
objcopy --only-keep-debug linked.so linked.debug
strip linked.so
objcopy --add-gnu-debuglink=linked.debug linked.so
