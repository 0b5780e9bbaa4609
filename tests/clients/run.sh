#!/usr/bin/env bash
# Asks a `tandem up` of this build through other people's clients (README.md). Arguments: names of clients, such as
# openai or lm_eval; without one, all.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
venv=$root/build/clients
export TANDEM=${TANDEM:-$root/build/release/bin/tandem}
export MODEL=${MODEL:-$root/models/sample}
export PYTHONDONTWRITEBYTECODE=1
# Clients that keep statistics are asked not to send them, and nothing is fetched from a hub.
export LITELLM_TELEMETRY=False LITELLM_LOCAL_MODEL_COST_MAP=True HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1
export DO_NOT_TRACK=1 HF_HUB_DISABLE_TELEMETRY=1 LANGCHAIN_TRACING_V2=false
# The packages are installed again when the list of them has changed.
if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/requirements.txt"
fi
if [ $# -eq 0 ]; then set -- openai responses anthropic litellm langchain guidellm aiperf lm_eval prompt_logprobs; fi
for client in "$@"; do
  "$venv/bin/python" "$here/${client}_client.py"
done
