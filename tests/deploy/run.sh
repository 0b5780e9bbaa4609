#!/usr/bin/env bash
# All checks of deploy/ with the schemas of Kubernetes from PyPI, which the tests of `make test` do without.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
tandem=${TANDEM:-$root/build/release/bin/tandem}
export PYTHONDONTWRITEBYTECODE=1
venv=$root/build/deploy
if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/requirements.txt"
fi
python=$venv/bin/python
"$python" "$here/check_manifests.py" --tandem "$tandem"
"$python" "$here/manifest_rules_test.py"
"$python" "$here/fetch_model_test.py"
"$python" "$here/systemd_test.py" "$tandem"
"$python" "$here/packaging_test.py" "$tandem"
