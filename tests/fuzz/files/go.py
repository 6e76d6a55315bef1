"""Writes the functions of a library as Go 1.20 writes its own (.gopclntab): go.py LIBRARY TABLE."""

import struct
import subprocess
import sys

symbols = subprocess.run(["nm", "-S", sys.argv[1]], capture_output=True, text=True, check=True).stdout
rows = [line.split() for line in symbols.splitlines()]
functions = sorted((int(row[0], 16), int(row[1], 16), row[3]) for row in rows if len(row) == 4 and row[2] in "tT")
functions = [one for at, one in enumerate(functions) if at == 0 or one[0] != functions[at - 1][0]]
text = functions[0][0]
names, places = b"\0", []
for _, _, name in functions:
    places.append(len(names))
    names += name.encode() + b"\0"
header = 8 + 8 * 8
list_bytes = 8 * len(functions) + 4
entries = header + len(names)
table = struct.pack("<IBBBB", 0xFFFFFFF1, 0, 0, 1, 8)
table += struct.pack("<8Q", len(functions), 0, text, header, entries, entries, entries, entries)
table += names
for index, (begins, _, _) in enumerate(functions):
    table += struct.pack("<II", begins - text, list_bytes + 8 * index)
table += struct.pack("<I", functions[-1][0] + functions[-1][1] - text)
for (begins, _, _), place in zip(functions, places):
    table += struct.pack("<II", begins - text, place)
open(sys.argv[2], "wb").write(table)
