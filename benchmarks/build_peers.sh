#!/usr/bin/env bash
# Builds the peers that `edgewise bench --peer` compares with, natively for this machine, each in an environment of its own.
# Usage: benchmarks/build_peers.sh [DIRECTORY]   (default: ~/.cache/edgewise/peers)
set -euo pipefail
directory=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/edgewise/peers}
for peer in llama.cpp:llama-cpp-python ik_llama.cpp:ik-llama-cpp-python; do
    name=${peer%%:*} package=${peer##*:}
    [ -x "$directory/$name/bin/python" ] || python3 -m venv "$directory/$name"
    CMAKE_ARGS="-DGGML_NATIVE=ON" "$directory/$name/bin/pip" install --quiet --no-binary "$package" "$package" numpy
    echo "$name: $("$directory/$name/bin/pip" list 2>/dev/null | grep "$package")"
done
[ -x "$directory/llama-server/bin/python" ] || python3 -m venv "$directory/llama-server"
"$directory/llama-server/bin/pip" install --quiet xllamacpp  # llama-server, for benchmarks/agent_loop.py
