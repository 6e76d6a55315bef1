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
# Stripped, with the small symbol table that Fedora leaves, and with Go's table.
objcopy -S --keep-symbol=middle dwarf5.so small
xz -f small
strip -s dwarf5.so -o mini.so
objcopy --add-section .gnu_debugdata=small.xz mini.so
python3 go.py dwarf5.so table
objcopy -S --add-section .gopclntab=table dwarf5.so go.so
rm small.xz table
