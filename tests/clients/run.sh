#!/usr/bin/env bash
# Asks a `tandem up` of this build through other people's clients (README.md). Arguments: names of clients, such as
# openai or lm_eval; without one, all but open_webui.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export TANDEM=${TANDEM:-$root/build/release/bin/tandem}
export MODEL=${MODEL:-$root/models/sample}
export PYTHONDONTWRITEBYTECODE=1
# Clients that keep statistics are asked not to send them, and nothing is fetched from a hub.
export LITELLM_TELEMETRY=False LITELLM_LOCAL_MODEL_COST_MAP=True HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1
export DO_NOT_TRACK=1 HF_HUB_DISABLE_TELEMETRY=1 LANGCHAIN_TRACING_V2=false
# install LIST FOLDER: the packages are installed again when the list of them has changed.
install() {
  if cmp -s "$here/$1" "$2/requirements.txt"; then return; fi
  python3 -m venv "$2"
  "$2/bin/pip" install --quiet -r "$here/$1"
  cp "$here/$1" "$2/requirements.txt"
}
if [ $# -eq 0 ]; then set -- openai responses anthropic litellm langchain guidellm aiperf lm_eval prompt_logprobs; fi
for client in "$@"; do
  list=requirements.txt
  venv=$root/build/clients
  # It wants other versions of the same packages.
  if [ "$client" = open_webui ]; then
    list=open_webui_requirements.txt
    venv=$root/build/open_webui
  fi
  install "$list" "$venv"
  "$venv/bin/python" "$here/${client}_client.py"
done
