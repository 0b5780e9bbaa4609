#!/usr/bin/env bash
# Asks a `tandem up` of this build through other people's clients (README.md).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
venv=$root/build/clients
export TANDEM=${TANDEM:-$root/build/release/bin/tandem}
export MODEL=${MODEL:-$root/models/sample}
# Clients that keep statistics are asked not to send them.
export LITELLM_TELEMETRY=False LITELLM_LOCAL_MODEL_COST_MAP=True
if ! cmp --silent "$here/requirements.txt" "$venv/installed.txt"; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/installed.txt"
fi
for client in "$here"/*_client.py; do
  "$venv/bin/python" "$client"
done
